package testenv

import (
	"bytes"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Cards are two network cards on one wire, which a test may have in place of a veth
// pair. Not for use by several goroutines.
type Cards struct {
	A, B   string // names of the interfaces, in the namespace of the process
	MTU    int    // bytes, the most they have with an XDP program
	Queues int    // the most of B; A sends by one
	// Drops reports whether A passes a specimen of the Zoo on in another form than it
	// was sent in, or not at all; nil: none.
	Drops func(name string, frame []byte) bool
	// Settles is how long a link must have been there to stay: a card that is reset may have
	// it at once, and lose it again when it talks with its fellow about speed.
	Settles time.Duration

	pair   *Pair // while they are taken
	inUse  bool
	queues int // B has now
}

// card is what an end that is a card has.
type card struct {
	socket int // to send, opened once: entering a namespace takes a while
	other  *End
	index  int // that it is bound to
	drops  func(name string, frame []byte) bool
	calm   time.Duration // Cards.Settles
}

// Take moves the cards into namespaces of their own until the end of the test. The
// kernel then moves them back, in its own time.
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
	// A card may wait for its fellow to have room. Who sends by it must not wait forever.
	receiveTimeout := unix.NsecToTimeval(int64(5 * time.Second))
	if err := unix.SetsockoptTimeval(e.card.socket, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &receiveTimeout); err != nil {
		t.Fatalf("bound the wait to send by %s: %v", name, err)
	}
	Wait(t, 10*time.Second, "the card "+name, func() bool {
		link, err := netlink.LinkByName(name)
		if err == nil {
			e.MAC = link.Attrs().HardwareAddr
		}
		return err == nil
	})
	return e
}

// Instead takes the cards and has NewPair give them, whenever they are free, until the
// end of the test. A second pair beside them is made of veth.
func (c *Cards) Instead(t testing.TB) {
	t.Helper()
	c.Take(t)
	instead = c
	t.Cleanup(func() { instead = nil })
}

// instead is what NewPair gives.
var instead *Cards

// Pair configures the cards as the options say, as far as they can: Pair.MTU and Pair.Queues have
// the result. The cards must have been taken.
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
		p.A.spread(t, 1) // several would not keep packets in order
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

// fetch finds the card, wherever the test before has left it, and moves it into its
// namespace.
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

// knows tells an end the other's address, so that it need not ask in frames shorter than
// Ethernet allows.
func (e *End) knows(t testing.TB, other *End) {
	t.Helper()
	n := &netlink.Neigh{LinkIndex: e.Index, Family: netlink.FAMILY_V4, State: netlink.NUD_PERMANENT, IP: other.IP.AsSlice(), HardwareAddr: other.MAC}
	if err := e.handle(t).NeighSet(n); err != nil {
		t.Fatalf("tell %s of %v: %v", e.Ifname, other.IP, err)
	}
}

// queueInOrder has packets leave as they were sent. The queue that cards are given by
// themselves takes turns among senders, and drops.
func (e *End) queueInOrder(t testing.TB) {
	t.Helper()
	attrs := netlink.QdiscAttrs{LinkIndex: e.Index, Parent: netlink.HANDLE_ROOT, Handle: netlink.MakeHandle(1, 0)}
	if err := e.handle(t).QdiscReplace(&netlink.GenericQdisc{QdiscAttrs: attrs, QdiscType: "pfifo"}); err != nil {
		t.Fatalf("give %s a queue: %v", e.Ifname, err)
	}
}

// byAddress is the interface with a hardware address, or nil.
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

// tidy takes addresses off the card, and with them their routes, and gives it an MTU.
func (e *End) tidy(t testing.TB, mtu int) {
	t.Helper()
	h := e.handle(t)
	link := e.link(t)
	addrs, err := h.AddrList(link, netlink.FAMILY_V4)
	if err != nil {
		t.Fatalf("list the addresses of %s: %v", e.Ifname, err)
	}
	for _, a := range addrs {
		if err := h.AddrDel(link, &a); err != nil {
			t.Fatalf("take %v off %s: %v", a.IPNet, e.Ifname, err)
		}
	}
	if link.Attrs().MTU == mtu {
		return
	}
	if err := h.LinkSetMTU(link, mtu); err != nil {
		t.Fatalf("set the MTU of %s to %d: %v", e.Ifname, mtu, err)
	}
}

// spread gives the card so many queues, which it chooses among by UDP's ports as well.
func (e *End) spread(t testing.TB, queues int) {
	t.Helper()
	now := strings.Fields(e.Run(t, Tool(t, "ethtool"), "-l", e.Ifname)) // the last number is of those
	if want := strconv.Itoa(queues); now[len(now)-1] != want {
		e.Run(t, "ethtool", "-L", e.Ifname, "combined", want)
	}
	e.Run(t, "ethtool", "-N", e.Ifname, "rx-flow-hash", "udp4", "sdfn")
}

// Deepen gives a card receive rings as long as it can have them, until the end of the test,
// for tests that hold an account against what another program says it has sent: what does
// not find room in them, an emulated igb card forgets, and counts nowhere. (QEMU lets packets
// wait while a ring is full, but once some have room again it hands over all of them:
// qemu_net_queue_flush in net/queue.c, igb_receive_internal in hw/net/igb_core.c.) Others
// stay as they are.
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

// ring is how many descriptors each receive ring of the card can have, and has.
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

// Queues are the numbers of queues of the given that NewPair can give, each once.
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

// IsCard reports whether the pair is of cards.
func (p *Pair) IsCard() bool { return p.B.card != nil }

// Carry waits until both ends have a link that stays. A card is without one for a moment
// whenever it is given a program; veth always has one.
func (p *Pair) Carry(t testing.TB) {
	t.Helper()
	carry(t, &p.A, &p.B)
}

// Carry is Pair.Carry of one end.
func (e *End) Carry(t testing.TB) {
	t.Helper()
	carry(t, e)
}

// carry waits until all ends have had a link for as long as it takes to stay.
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
	const carries = 1<<16 | 1<<6 // IFF_LOWER_UP, which the driver sets, and IFF_RUNNING, later
	return e.link(t).Attrs().RawFlags&carries == carries
}
