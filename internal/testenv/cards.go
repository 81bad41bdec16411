package testenv

import (
	"bytes"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Cards are two network cards on one wire. A test may use them instead of a veth pair. They are not
// safe for use by several goroutines.
type Cards struct {
	A, B   string // names of the interfaces, in the namespace of the process
	MTU    int    // bytes, the most that both allow with an XDP program
	Queues int    // the most of B; A sends on one
	// Drops reports whether A drops or changes a specimen of the Zoo; nil: none.
	Drops func(name string, frame []byte) bool
	// Settles is how long a link must be up before it is stable. A card may have a link right after
	// a reset, and lose it again when it negotiates the speed.
	Settles time.Duration

	pair   *Pair // while the cards are taken
	inUse  bool
	queues int // that B has now
}

// card is the state of an end that is a card.
type card struct {
	socket int // for sending, opened once because entering a namespace is slow
	other  *End
	index  int // of the interface that the socket is bound to
	drops  func(name string, frame []byte) bool
	calm   time.Duration // Cards.Settles
}

// Take moves the cards into their own namespaces until the end of the test.
func (c *Cards) Take(t testing.TB) {
	t.Helper()
	c.pair, c.queues = &Pair{A: c.end(t, c.A, 1), B: c.end(t, c.B, 2)}, 0
	c.pair.A.card.other, c.pair.B.card.other = &c.pair.B, &c.pair.A
	t.Cleanup(func() { c.pair = nil })
}

// end makes the namespace of a card.
func (c *Cards) end(t testing.TB, name string, host byte) End {
	t.Helper()
	e := End{
		Namespace: NewNamespace(t), Ifname: name, card: &card{drops: c.Drops, calm: c.Settles},
		IP: netip.AddrFrom4([4]byte{10, 77, 0, host}), IP6: netip.AddrFrom16([16]byte{0xfd, 0x77, 15: host}),
	}
	e.Do(t, func() { quietIPv6(t, false) })
	e.setUp(t, "lo")
	e.card.socket = e.packetSocket(t)
	t.Cleanup(func() { unix.Close(e.card.socket) })
	// A card may wait until its fellow has room. A send must not wait forever.
	receiveTimeout := unix.NsecToTimeval(int64(5 * time.Second))
	Mustf(t, unix.SetsockoptTimeval(e.card.socket, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &receiveTimeout), "bound the wait to send by %s", name)
	Wait(t, 10*time.Second, "the card "+name, func() bool {
		link, err := netlink.LinkByName(name)
		if err == nil {
			e.MAC = link.Attrs().HardwareAddr
		}
		return err == nil
	})
	t.Cleanup(func() { e.giveBack(t, name) })
	return e
}

// giveBack moves the card from its namespace to that of the process, with a name. The kernel does so, too, when the
// namespace ends. But a TCP connection that was closed keeps the namespace until the peer has acknowledged its end: for
// 20 s if the peer is gone (see the limits in package connect).
func (e *End) giveBack(t testing.TB, name string) {
	t.Helper()
	h := e.handle(t)
	link := byAddress(h, e.MAC)
	if link == nil {
		return // the test has moved or removed it
	}
	if link.Attrs().Name != name {
		_ = h.LinkSetDown(link)
		Checkf(t, h.LinkSetName(link, name), "rename %s to %s", link.Attrs().Name, name)
	}
	Checkf(t, h.LinkSetNsPid(link, os.Getpid()), "give %s back to the namespace of the process", name)
}

// Instead takes the cards and makes NewPair return them, whenever they are free, until the end of
// the test. NewPair makes a second pair of veth.
func (c *Cards) Instead(t testing.TB) {
	t.Helper()
	c.Take(t)
	instead = c
	t.Cleanup(func() { instead = nil })
}

// instead are the cards that NewPair returns.
var instead *Cards

// Pair configures the cards according to the options, as far as they support them. Pair.MTU and
// Pair.Queues have the result. The cards must have been taken.
func (c *Cards) Pair(t testing.TB, o PairOptions) *Pair {
	t.Helper()
	if o.IPv6 {
		t.Fatal("cards are set up without IPv6")
	}
	p := *c.pair
	p.MTU, p.Queues = min(o.MTU, c.MTU), min(o.Queues, c.Queues)
	c.inUse = true
	t.Cleanup(func() { c.inUse = false })
	for _, e := range []*End{&p.A, &p.B} {
		e.fetch(t)
		e.tidy(t, p.MTU)
		e.up(t, PairOptions{NoAddresses: o.NoAddresses})
		e.queueInOrder(t)
		e.bind(t, e.card.socket)
		e.card.index = e.Index
	}
	if c.queues != p.Queues && c.Queues > 1 {
		p.A.spread(t, 1) // several queues would reorder packets
		p.B.spread(t, p.Queues)
	}
	c.queues = p.Queues
	if !o.NoAddresses {
		p.A.knows(t, &p.B)
		p.B.knows(t, &p.A)
	}
	p.Carry(t)
	return &p
}

// fetch finds the card, wherever the test before left it, and moves it into its namespace.
func (e *End) fetch(t testing.TB) {
	t.Helper()
	h := e.handle(t)
	Wait(t, 10*time.Second, "the card "+e.Ifname, func() bool {
		link := byAddress(h, e.MAC)
		if link == nil {
			if home, err := netlink.NewHandle(); err == nil {
				if link := byAddress(home, e.MAC); link != nil {
					_ = home.LinkSetNsFd(link, int(e.fd))
				}
				home.Close()
			}
			return false
		}
		e.Index = link.Attrs().Index
		if link.Attrs().Name != e.Ifname {
			_ = h.LinkSetDown(link)
			return h.LinkSetName(link, e.Ifname) == nil
		}
		return true
	})
}

// knows adds a neighbour entry for the other end. Without it the end would send an ARP request in a
// frame shorter than Ethernet allows.
func (e *End) knows(t testing.TB, other *End) {
	t.Helper()
	n := &netlink.Neigh{LinkIndex: e.Index, Family: netlink.FAMILY_V4, State: netlink.NUD_PERMANENT, IP: other.IP.AsSlice(), HardwareAddr: other.MAC}
	Mustf(t, e.handle(t).NeighSet(n), "tell %s of %v", e.Ifname, other.IP)
}

// queueInOrder sets a queueing discipline that keeps packets in order. The default one of a card
// alternates between senders, and drops packets.
func (e *End) queueInOrder(t testing.TB) {
	t.Helper()
	attrs := netlink.QdiscAttrs{LinkIndex: e.Index, Parent: netlink.HANDLE_ROOT, Handle: netlink.MakeHandle(1, 0)}
	Mustf(t, e.handle(t).QdiscReplace(&netlink.GenericQdisc{QdiscAttrs: attrs, QdiscType: "pfifo"}), "give %s a queue", e.Ifname)
}

// byAddress returns the interface with a hardware address, or nil.
func byAddress(h *netlink.Handle, mac net.HardwareAddr) netlink.Link {
	links, err := h.LinkList()
	if err != nil {
		return nil
	}
	for _, l := range links {
		if bytes.Equal(l.Attrs().HardwareAddr, mac) {
			return l
		}
	}
	return nil
}

// tidy removes the card's addresses, and with them their routes, and sets its MTU.
func (e *End) tidy(t testing.TB, mtu int) {
	t.Helper()
	h := e.handle(t)
	link := e.link(t)
	addrs, err := h.AddrList(link, netlink.FAMILY_V4)
	Mustf(t, err, "list the addresses of %s", e.Ifname)
	for _, a := range addrs {
		Mustf(t, h.AddrDel(link, &a), "take %v off %s", a.IPNet, e.Ifname)
	}
	if link.Attrs().MTU == mtu {
		return
	}
	Mustf(t, h.LinkSetMTU(link, mtu), "set the MTU of %s to %d", e.Ifname, mtu)
}

// spread sets the card's number of queues. It also makes the card's hash include UDP ports.
func (e *End) spread(t testing.TB, queues int) {
	t.Helper()
	now := strings.Fields(e.Run(t, Tool(t, "ethtool"), "-l", e.Ifname)) // the last number is that of combined queues
	if want := strconv.Itoa(queues); now[len(now)-1] != want {
		e.Run(t, "ethtool", "-L", e.Ifname, "combined", want)
	}
	e.Run(t, "ethtool", "-N", e.Ifname, "rx-flow-hash", "udp4", "sdfn")
}

// Deepen gives a card its longest receive rings until the end of the test. It does nothing to veth.
// Tests that compare counters with the packets another program has sent need it: an emulated igb
// card drops packets that do not fit its rings, and counts them nowhere. (QEMU holds packets while
// a ring is full. As soon as the ring has room for some, it delivers all of them:
// qemu_net_queue_flush in net/queue.c, igb_receive_internal in hw/net/igb_core.c.)
func (e *End) Deepen(t testing.TB) {
	t.Helper()
	if e.card == nil {
		return
	}
	most, now := e.ring(t)
	if most == now {
		return
	}
	e.Run(t, "ethtool", "-G", e.Ifname, "rx", most)
	t.Cleanup(func() { e.Run(t, "ethtool", "-G", e.Ifname, "rx", now) })
}

// ring returns how many descriptors each receive ring of the card can have, and has.
func (e *End) ring(t testing.TB) (most, now string) {
	t.Helper()
	var all []string
	for line := range strings.Lines(e.Run(t, Tool(t, "ethtool"), "-g", e.Ifname)) {
		if n, is := strings.CutPrefix(line, "RX:"); is {
			all = append(all, strings.TrimSpace(n))
		}
	}
	if len(all) != 2 {
		t.Fatalf("ethtool -g %s: %d lengths of receive rings, not 2: %q", e.Ifname, len(all), all)
	}
	return all[0], all[1]
}

// MTUs returns those of the given MTUs that NewPair can set, each once.
func MTUs(given ...int) []int {
	if instead == nil {
		return given
	}
	return limited(given, instead.MTU)
}

// Queues returns those of the given numbers of queues that NewPair can set, each once.
func Queues(given ...int) []int {
	if instead == nil {
		return given
	}
	return limited(given, instead.Queues)
}

func limited(given []int, most int) (all []int) {
	for _, n := range given {
		if n = min(n, most); !slices.Contains(all, n) {
			all = append(all, n)
		}
	}
	return all
}

// IsCard reports whether the pair consists of cards.
func (p *Pair) IsCard() bool { return p.B.card != nil }

// Carry waits until both ends have a stable link. A card loses its link for a moment when it gets a
// program. veth always has a link.
func (p *Pair) Carry(t testing.TB) {
	t.Helper()
	carry(t, &p.A, &p.B)
}

// Carry is Pair.Carry for one end.
func (e *End) Carry(t testing.TB) {
	t.Helper()
	carry(t, e)
}

// carry waits until all ends have had a link for as long as it takes to be stable.
func carry(t testing.TB, ends ...*End) {
	t.Helper()
	card := ends[0].card
	if card == nil {
		return
	}
	var since time.Time
	Wait(t, 10*time.Second, ends[0].Ifname+" and its fellow to carry", func() bool {
		for _, e := range ends {
			if !e.carries(t) {
				since = time.Time{}
				return false
			}
		}
		if since.IsZero() {
			since = time.Now()
		}
		return time.Since(since) >= card.calm
	})
}

func (e *End) carries(t testing.TB) bool {
	t.Helper()
	const carries = 1<<16 | 1<<6 // the driver sets IFF_LOWER_UP; IFF_RUNNING follows later
	return e.link(t).Attrs().RawFlags&carries == carries
}
