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

// neighbourKey identifies a neighbour: its address, and the index of the interface.
type neighbourKey struct {
	link int
	ip   netip.Addr
}

// neighbour is an entry of the kernel's neighbour table.
type neighbour struct {
	state int // netlink.NUD_*; NUD_NONE also if there is no entry
	mac   MAC
}

// usableStates are the states in which the kernel itself would send: NUD_VALID in
// include/net/neighbour.h.
const usableStates = netlink.NUD_PERMANENT | netlink.NUD_NOARP | netlink.NUD_REACHABLE | netlink.NUD_PROBE | netlink.NUD_STALE | netlink.NUD_DELAY

// valid reports whether packets can be sent to it.
func (n neighbour) valid() bool { return n.state&usableStates != 0 && n.mac != MAC{} }

// idle reports whether the kernel does nothing at present to find out whether the neighbour is
// reachable.
func (n neighbour) idle() bool {
	return n.state == netlink.NUD_NONE || n.state&(netlink.NUD_STALE|netlink.NUD_FAILED) != 0
}

// failed reports whether the kernel has given up resolving the neighbour.
func (n neighbour) failed() bool { return n.state&netlink.NUD_FAILED != 0 }

// neighbour looks up one entry: RTM_GETNEIGH with an address, neigh_get in net/core/neighbour.c.
// The netlink package can only list all entries, and there may be thousands.
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

// use tells the kernel that a neighbour is in use, as a packet to it would. The kernel then
// resolves its MAC, or verifies an old one. use must not be called for a permanent entry, which
// would become an ordinary one: __neigh_update in net/core/neighbour.c.
func (k *kernel) use(of neighbourKey) error {
	err := k.ask(func(h *netlink.Handle) error {
		return h.NeighSet(&netlink.Neigh{LinkIndex: of.link, Family: int(of.family()), IP: net.IP(of.ip.AsSlice()), Flags: netlink.NTF_USE})
	})
	if err != nil {
		return neighbourError("ask for", of, err)
	}
	return nil
}

// look reads the state of a neighbour, and tells the kernel that the neighbour is in use. If the
// process has no permission for that, look fails unless the state is valid.
func (k *kernel) look(of neighbourKey) (neighbour, error) {
	n, err := k.neighbour(of)
	if err == nil && n.idle() {
		err = k.use(of)
	}
	if n.valid() && errors.Is(err, errPermission) {
		err = nil
	}
	return n, err
}

func neighbourError(step string, of neighbourKey, err error) error {
	switch {
	case errors.Is(err, errClosed):
		return err
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("%s neighbour %v: %w: %w (run as root, or with CAP_NET_ADMIN)", step, of.ip, errPermission, err)
	case errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENXIO):
		return fmt.Errorf("%s neighbour %v: %w", step, of.ip, errGone)
	case errors.Is(err, unix.ENETDOWN):
		return fmt.Errorf("%s neighbour %v: %w (ip link set ... up)", step, of.ip, errInterfaceDown)
	case errors.Is(err, unix.ENOBUFS):
		return fmt.Errorf("%s neighbour %v: the kernel's table of neighbours is full: %w (raise net.ipv4.neigh.default.gc_thresh3 and that of ipv6)", step, of.ip, err)
	}
	return fmt.Errorf("%s neighbour %v: %w", step, of.ip, err)
}

// Resolve finds the route from an entry of the GID table to a peer or a multicast group. If the
// kernel does not know the MAC of the next hop, Resolve makes it ask and waits: until ctx ends, or
// the kernel gives up, by default after three seconds.
//
// The error names the peer, the cause and the remedy. It is ErrInterfaceGone if the interface is
// gone. When ctx ends it wraps the context's error.
func (i *Interface) Resolve(ctx context.Context, place int, destination rdma.GID) (Route, error) {
	w, err := i.resolve(ctx, place, destination, nil)
	if err != nil {
		return Route{}, fmt.Errorf("find the route to %v from %s: %w", destination, i.placeName(place), err)
	}
	return w, nil
}

func (i *Interface) resolve(ctx context.Context, place int, destination rdma.GID, c *Connection) (Route, error) {
	w, err := i.lead(place, destination, c)
	if err != nil || !w.NextHop.IsValid() {
		return w, err
	}
	w.DestinationMAC, err = i.await(ctx, w.key())
	return w, err
}

// lead returns a route without the MAC of its next hop. c is the connection that it is for, or nil.
func (i *Interface) lead(place int, destination rdma.GID, c *Connection) (Route, error) {
	w, err := i.begin(place, destination)
	if c != nil {
		w.connected, w.connection = true, *c
	}
	switch to := destination.Addr(); {
	case err != nil:
	case w.Local:
		w.DestinationMAC = w.SourceMAC
	case to.IsMulticast():
		w.DestinationMAC, err = groupMAC(destination)
	case !isHost(to):
		err = fmt.Errorf("%w: no host on a network has such an address", errNoRoute)
	default:
		err = i.kernel.route(&w)
	}
	return w, err
}

// begin returns the part of a route that depends only on the source. If the destination is an
// address of the source's host, it returns the whole route.
func (i *Interface) begin(place int, destination rdma.GID) (Route, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if err := i.unusable(); err != nil {
		return Route{}, err
	}
	from, ok := i.table.at(place)
	switch {
	case !ok:
		return Route{}, fmt.Errorf("%w: place %d of the table of GIDs is empty (it has %v)", errSource, place, places(i.table))
	case from.gid.Is4() != destination.Is4():
		return Route{}, fmt.Errorf("%w: one is IPv4 and the other IPv6 (choose one of %v)", errSource, places(i.table))
	}
	l := i.link(from.link)
	if !l.up {
		return Route{}, fmt.Errorf("%w: %s (see: ip link; ip link set %s up)", errInterfaceDown, l.name, l.name)
	}
	return Route{
		Place: place, Source: from.gid, Destination: destination, SourceMAC: l.mac, Tags: l.tags, MTU: min(l.mtu, i.links[0].mtu),
		HopLimit: defaultHopLimit, Local: i.table.has(destination), link: l.index,
	}, nil
}

// places lists the entries of a GID table.
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

// lookAgain is how long await waits for a message about a neighbour before it reads the entry, in
// case messages were lost.
const lookAgain = 250 * time.Millisecond

// await returns the MAC of a neighbour. If necessary it makes the kernel resolve it.
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

// wait returns when the neighbour's entry may have changed. It fails if the entry will not change.
func (i *Interface) wait(ctx context.Context, news *waiter, n neighbour) error {
	const remedy = "(check that it is up and on this link)"
	if n.failed() {
		return fmt.Errorf("%w: %v %s", errUnanswered, news.of.ip, remedy)
	}
	t := time.NewTimer(lookAgain)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return fmt.Errorf("%w: %v: %w %s", errUnanswered, news.of.ip, context.Cause(ctx), remedy)
	case <-i.done:
		return errClosed
	case <-news.come:
	case <-t.C:
	}
	return nil
}

// waiter receives a notice when the entry of a neighbour changes.
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
	// settle is how long to collect changes before a refresh: they come in groups.
	settle = 5 * time.Millisecond
	// share bounds the time spent on refreshes: at most 1/share of all time, however often they are
	// requested.
	share = 10
)

// pendingRefresh says when to refresh something that the kernel reported as changed.
type pendingRefresh struct {
	due  time.Time // zero: not requested
	rest time.Time // not before this time
}

func (c *pendingRefresh) wanted() bool { return !c.due.IsZero() }

// want requests a refresh after the changes have settled.
func (c *pendingRefresh) want() {
	if !c.wanted() {
		c.due = time.Now().Add(settle)
		if c.due.Before(c.rest) {
			c.due = c.rest
		}
	}
}

// by returns the earlier of t and the time when the refresh is due.
func (c *pendingRefresh) by(t time.Time) time.Time {
	if c.wanted() && c.due.Before(t) {
		return c.due
	}
	return t
}

// do calls f if the refresh is due. f may request another one.
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
