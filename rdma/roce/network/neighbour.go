package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/rdma"
)

// neighbourKey is a neighbour's name: its address, and the index of the interface it is on.
type neighbourKey struct {
	link int
	ip   netip.Addr
}

// neighbour is what the kernel's table has of one.
type neighbour struct {
	state int // netlink.NUD_*; NUD_NONE also where there is no entry
	mac   MAC
}

// usableStates are those in which the kernel itself would send: NUD_VALID in include/net/neighbour.h.
const usableStates = netlink.NUD_PERMANENT | netlink.NUD_NOARP | netlink.NUD_REACHABLE | netlink.NUD_PROBE | netlink.NUD_STALE | netlink.NUD_DELAY

// valid reports whether packets can be sent to it.
func (n neighbour) valid() bool { return n.state&usableStates != 0 && n.mac != MAC{} }

// idle reports whether the kernel does nothing at present to learn whether it is there.
func (n neighbour) idle() bool {
	return n.state == netlink.NUD_NONE || n.state&(netlink.NUD_STALE|netlink.NUD_FAILED) != 0
}

// silent reports whether the kernel has given up asking.
func (n neighbour) silent() bool { return n.state&netlink.NUD_FAILED != 0 }

// neighbour looks one up: RTM_GETNEIGH with an address, neigh_get in net/core/neighbour.c. (The netlink package
// can list them only, and there may be thousands.)
func (k *kernel) neighbour(of neighbourKey) (n neighbour, err error) {
	var answers [][]byte
	err = k.ask(func(*netlink.Handle) error {
		r := nl.NewNetlinkRequest(unix.RTM_GETNEIGH, 0)
		r.Sockets = k.sockets
		r.AddData(&netlink.Ndmsg{Family: of.family(), Index: uint32(of.link)})
		r.AddData(nl.NewRtAttr(netlink.NDA_DST, of.ip.AsSlice()))
		answers, err = r.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWNEIGH)
		return err
	})
	switch {
	case errors.Is(err, unix.ENOENT):
		return neighbour{}, nil
	case err != nil:
		return neighbour{}, neighbourError("look up", of, err)
	}
	for _, answer := range answers {
		if e, err := netlink.NeighDeserialize(answer); err == nil {
			n = neighbourOf(e)
		}
	}
	return n, nil
}

func (h neighbourKey) family() uint8 {
	if h.ip.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

func neighbourOf(e *netlink.Neigh) neighbour {
	n := neighbour{state: e.State}
	n.mac, _ = macOf(e.HardwareAddr)
	return n
}

// use tells the kernel that a neighbour is in use, which makes it find out its MAC, or check an
// old one, as a packet to it would. It must not be told of a permanent entry, which would become
// an ordinary one: __neigh_update in net/core/neighbour.c.
func (k *kernel) use(of neighbourKey) error {
	err := k.ask(func(h *netlink.Handle) error {
		return h.NeighSet(&netlink.Neigh{LinkIndex: of.link, Family: int(of.family()), IP: net.IP(of.ip.AsSlice()), Flags: netlink.NTF_USE})
	})
	if err != nil {
		return neighbourError("ask for", of, err)
	}
	return nil
}

// look looks a neighbour up that is in use, as it is before the kernel is told so. Where that is not permitted, what the kernel
// has must do.
func (k *kernel) look(of neighbourKey) (neighbour, error) {
	n, err := k.neighbour(of)
	if err == nil && n.idle() {
		err = k.use(of)
	}
	if n.valid() && errors.Is(err, ErrPermission) {
		err = nil
	}
	return n, err
}

func neighbourError(step string, of neighbourKey, err error) error {
	switch {
	case errors.Is(err, ErrClosed):
		return err
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("%s neighbour %v: %w: %w (run as root, or with CAP_NET_ADMIN)", step, of.ip, ErrPermission, err)
	case errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENXIO):
		return fmt.Errorf("%s neighbour %v: %w", step, of.ip, errGone)
	case errors.Is(err, unix.ENETDOWN):
		return fmt.Errorf("%s neighbour %v: %w (ip link set ... up)", step, of.ip, ErrInterfaceDown)
	case errors.Is(err, unix.ENOBUFS):
		return fmt.Errorf("%s neighbour %v: the kernel's table of neighbours is full: %w (raise net.ipv4.neigh.default.gc_thresh3 and that of ipv6)", step, of.ip, err)
	}
	return fmt.Errorf("%s neighbour %v: %w", step, of.ip, err)
}

// Resolve finds the way from a place of the table to a peer or a group. Where the kernel does not know the next hop's MAC, it is made
// to ask, and Resolve waits for the answer: until ctx ends, or the kernel gives up, which is after three seconds
// as it comes.
//
// The error names the peer and what to do, and is one of ErrSource, ErrNoRoute, ErrUnanswered, ErrInterfaceDown,
// ErrInterfaceGone, ErrPermission and ErrClosed. When ctx ends it is ErrUnanswered and the context's.
func (i *Interface) Resolve(ctx context.Context, place int, destination rdma.GID) (Route, error) {
	w, err := i.resolve(ctx, place, destination)
	if err != nil {
		return Route{}, fmt.Errorf("find the way to %v from %s: %w", destination, i.placeName(place), err)
	}
	return w, nil
}

func (i *Interface) resolve(ctx context.Context, place int, destination rdma.GID) (Route, error) {
	w, err := i.lead(place, destination)
	if err != nil || !w.NextHop.IsValid() {
		return w, err
	}
	w.DestinationMAC, err = i.await(ctx, w.key())
	return w, err
}

// lead is a way but for the MAC of its next hop, if it has one.
func (i *Interface) lead(place int, destination rdma.GID) (Route, error) {
	w, err := i.begin(place, destination)
	switch to := destination.Addr(); {
	case err != nil:
	case w.Local:
		w.DestinationMAC = w.SourceMAC
	case to.IsMulticast():
		w.DestinationMAC, err = GroupMAC(destination)
	case !isHost(to):
		err = fmt.Errorf("%w: no host on a network has such an address", ErrNoRoute)
	default:
		err = i.kernel.route(&w)
	}
	return w, err
}

// begin is the part of a way that the source decides, or all of it where the destination is the source's host.
func (i *Interface) begin(place int, destination rdma.GID) (Route, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if err := i.unusable(); err != nil {
		return Route{}, err
	}
	from, ok := i.table.at(place)
	switch {
	case !ok:
		return Route{}, fmt.Errorf("%w: place %d of the table of GIDs is empty (it has %v)", ErrSource, place, places(i.table))
	case from.gid.Is4() != destination.Is4():
		return Route{}, fmt.Errorf("%w: one is IPv4 and the other IPv6 (choose one of %v)", ErrSource, places(i.table))
	}
	l := i.link(from.link)
	if !l.up {
		return Route{}, fmt.Errorf("%w: %s (see: ip link; ip link set %s up)", ErrInterfaceDown, l.name, l.name)
	}
	return Route{
		Place: place, Source: from.gid, Destination: destination, SourceMAC: l.mac, Tags: l.tags, MTU: min(l.mtu, i.links[0].mtu),
		HopLimit: defaultHopLimit, Local: i.table.has(destination), link: l.index,
	}, nil
}

// places says what a table has.
func places(t table) string {
	var texts []string
	for _, e := range t.entries() {
		texts = append(texts, fmt.Sprintf("%d: %v", e.Index, e.GID))
	}
	if len(texts) == 0 {
		return "none"
	}
	return strings.Join(texts, ", ")
}

// lookAgain is how long await waits for news of a neighbour before it looks whether they were lost.
const lookAgain = 250 * time.Millisecond

// await is the MAC of a neighbour, for which the kernel asks where it must.
func (i *Interface) await(ctx context.Context, of neighbourKey) (MAC, error) {
	news := i.expect(of)
	defer i.forget(news)
	n, err := i.kernel.look(of)
	for err == nil && !n.valid() {
		if n, err = i.kernel.neighbour(of); err == nil && !n.valid() {
			err = i.wait(ctx, news, n)
		}
	}
	return n.mac, err
}

// wait returns when there may be news of a neighbour, and an error when there will be none.
func (i *Interface) wait(ctx context.Context, news *waiter, n neighbour) error {
	const remedy = "(check that it is up and on this link)"
	if n.silent() {
		return fmt.Errorf("%w: %v %s", ErrUnanswered, news.of.ip, remedy)
	}
	t := time.NewTimer(lookAgain)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return fmt.Errorf("%w: %v: %w %s", ErrUnanswered, news.of.ip, context.Cause(ctx), remedy)
	case <-i.done:
		return ErrClosed
	case <-news.come:
	case <-t.C:
	}
	return nil
}

// waiter is told of news of a neighbour.
type waiter struct {
	of   neighbourKey
	come chan struct{}
}

func (i *Interface) expect(of neighbourKey) *waiter {
	i.mu.Lock()
	defer i.mu.Unlock()
	w := &waiter{of, make(chan struct{}, 1)}
	i.waiting[w] = struct{}{}
	return w
}

func (i *Interface) forget(w *waiter) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.waiting, w)
}

const (
	// settle is how long changes are gathered before things are read again: they come in swarms.
	settle = 5 * time.Millisecond
	// share of the time is spent on a chore at most, however much it is and however often it is wanted: 1/share.
	share = 10
)

// pendingRefresh is something to read again when the kernel has said that it changed.
type pendingRefresh struct {
	due  time.Time // zero: not wanted
	rest time.Time // it is not done before
}

func (c *pendingRefresh) wanted() bool { return !c.due.IsZero() }

// want has it done once changes have settled.
func (c *pendingRefresh) want() {
	if !c.wanted() {
		c.due = time.Now().Add(settle)
		if c.due.Before(c.rest) {
			c.due = c.rest
		}
	}
}

// by is when it must be done if that is before t, and else t.
func (c *pendingRefresh) by(t time.Time) time.Time {
	if c.wanted() && c.due.Before(t) {
		return c.due
	}
	return t
}

// do does it if it is time. It can be wanted again meanwhile.
func (c *pendingRefresh) do(f func()) {
	begun := time.Now()
	if !c.wanted() || begun.Before(c.due) {
		return
	}
	c.due = time.Time{}
	f()
	now := time.Now()
	c.rest = now.Add((share - 1) * now.Sub(begun))
	if c.wanted() {
		c.due = c.rest
	}
}
