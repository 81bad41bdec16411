package network

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/rdma"
)

// refreshEvery is the interval between two checks of tracked routes. The entry of an unused
// neighbour becomes stale after 15 to 45 seconds.
const refreshEvery = 10 * time.Second

// watch is the goroutine that receives messages from the kernel. No other goroutine uses its
// fields.
type watch struct {
	i       *Interface
	socket  *nl.NetlinkSocket
	refresh time.Duration

	links  pendingRefresh // and addresses
	routes pendingRefresh // the tracked ones
	tick   time.Time      // of the next regular check of routes
}

// newWatch subscribes to the kernel's messages about links, addresses, routes, rules and neighbours.
func newWatch(i *Interface, refresh time.Duration) (*watch, error) {
	s, err := nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR,
		unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE, unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE, unix.RTNLGRP_NEXTHOP, unix.RTNLGRP_NEIGH)
	if err != nil {
		return nil, fmt.Errorf("listen to netlink: %w", err)
	}
	return &watch{i: i, socket: s, refresh: refresh, tick: time.Now().Add(refresh)}, nil
}

// run returns when the Interface is closed or gone.
func (w *watch) run() {
	defer close(w.i.ended)
	for w.open() {
		w.listen()
		if now := time.Now(); !now.Before(w.tick) {
			w.tick = now.Add(w.refresh)
			w.routes.want()
		}
		w.links.do(w.rereadLinks)
		if !w.links.wanted() { // otherwise routes would be looked up from addresses that are gone
			w.routes.do(w.i.rerouteAll)
		}
	}
}

func (w *watch) open() bool {
	w.i.mu.Lock()
	defer w.i.mu.Unlock()
	return w.i.unusable() == nil
}

// listen processes the next message, or returns when a refresh is due.
func (w *watch) listen() {
	until := w.links.by(w.tick)
	if !w.links.wanted() {
		until = w.routes.by(until)
	}
	wait := time.Until(until)
	if wait < time.Microsecond {
		return
	}
	tv := unix.NsecToTimeval(wait.Nanoseconds())
	_ = w.socket.SetReceiveTimeout(&tv) // setsockopt of a valid value does not fail
	said, from, err := w.socket.Receive()
	switch {
	case errors.Is(err, unix.EAGAIN):
	case err != nil:
		w.missed(err)
	case from.Pid == nl.PidKernel:
		for _, m := range said {
			w.hear(&m)
		}
	}
}

// missed handles an error of the socket. Messages may be lost, usually because its buffer was full,
// so everything is read again.
func (w *watch) missed(err error) {
	if !w.open() {
		return // the socket was closed
	}
	if errors.Is(err, unix.ENOBUFS) {
		w.i.counter.overruns.Add(1)
	} else {
		w.i.counter.failures.Add(1)
		time.Sleep(settle) // an error that persists must not make it spin
	}
	w.links.want()
	w.routes.want()
}

// hear processes a message. In all messages but those about routes, rules and next hops, the interface's index
// follows the first four bytes.
func (w *watch) hear(m *syscall.NetlinkMessage) {
	switch m.Header.Type {
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE, unix.RTM_NEWRULE, unix.RTM_DELRULE, unix.RTM_NEWNEXTHOP, unix.RTM_DELNEXTHOP:
		w.routes.want()
		return
	}
	if len(m.Data) < unix.SizeofNdMsg {
		return
	}
	index := int(binary.NativeEndian.Uint32(m.Data[4:]))
	ours := w.i.hasLink(index)
	switch m.Header.Type {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		if ours || w.i.hasLink(parent(m.Data)) {
			w.links.want()
		}
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		if ours {
			w.links.want()
		}
	case unix.RTM_NEWNEIGH, unix.RTM_DELNEIGH:
		if ours {
			w.hearNeighbour(m)
		}
	}
}

// hearNeighbour processes a change of a neighbour. Entries of bridges have a MAC and no IP address.
func (w *watch) hearNeighbour(m *syscall.NetlinkMessage) {
	e, err := netlink.NeighDeserialize(m.Data)
	if err != nil {
		return
	}
	ip, ok := netip.AddrFromSlice(e.IP)
	n := neighbourOf(e)
	if m.Header.Type == unix.RTM_DELNEIGH {
		n = neighbour{}
	}
	w.i.order.Lock()
	defer w.i.order.Unlock()
	if ok && w.i.learn(neighbourKey{e.LinkIndex, ip}, n) {
		w.routes.want()
	}
}

// parent returns the index of the interface below a message's interface; 0: none.
func parent(message []byte) int {
	if len(message) < unix.SizeofIfInfomsg {
		return 0
	}
	attributes, err := nl.ParseRouteAttr(message[unix.SizeofIfInfomsg:])
	if err != nil {
		return 0
	}
	for _, a := range attributes {
		if a.Attr.Type == unix.IFLA_LINK && len(a.Value) == 4 {
			return int(binary.NativeEndian.Uint32(a.Value))
		}
	}
	return 0
}

func (i *Interface) hasLink(index int) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.ContainsFunc(i.links, func(l link) bool { return l.index == index })
}

// rereadLinks reads links and addresses, which routes depend on. If that fails, it tries again
// later.
func (w *watch) rereadLinks() {
	err := w.i.reread()
	w.i.counter.rereads.Add(1)
	switch {
	case errors.Is(err, ErrInterfaceGone):
		w.i.vanish()
	case err != nil && !errors.Is(err, errClosed):
		w.i.counter.failures.Add(1)
		w.links.want()
	}
	w.routes.want()
	w.i.announce()
}

// announce makes FD readable, so that the caller calls Next.
func (i *Interface) announce() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.event.raise()
}

// vanish records that the interface is gone.
func (i *Interface) vanish() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.gone = true
	i.links = i.links[:1]
	i.links[0].up = false
	i.table = nil
	for k := range i.tracked {
		k.err, k.next = ErrInterfaceGone, Route{}
	}
}

// What is the kind of a Change.
type What uint8

const (
	// Gone: the interface was removed. No other change follows.
	Gone What = iota + 1
	// LinkChanged: the name, MAC, MTU or state. Change.Link has the new ones.
	LinkChanged
	// GIDAdded and GIDRemoved: Change.GID was added to the table or removed.
	GIDAdded
	GIDRemoved
	// RouteChanged: the headers of packets on Change.Tracked must change, or its peer is reachable
	// again.
	RouteChanged
	// RouteLost: the peer of Change.Tracked is not reachable; its Route has the reason. The kernel keeps asking.
	RouteLost
)

func (w What) String() string {
	names := []string{"none", "gone", "link changed", "GID added", "GID removed", "way changed", "way lost"}
	if int(w) < len(names) {
		return names[w]
	}
	return "unknown"
}

// Change is a difference between the present state and the state that was reported last.
type Change struct {
	What    What
	Link    Link          // of LinkChanged
	GID     rdma.GIDEntry // of GIDAdded and GIDRemoved
	Tracked *TrackedRoute // of RouteChanged and RouteLost
}

// reported is the state that Next has reported, or Open has returned.
type reported struct {
	gone   bool
	link   Link
	table  table
	routes []*TrackedRoute // the routes that may have something to report
}

// FD returns a descriptor that polls readable while Next may have a change. It belongs to the
// Interface: the caller must not read or close it. After Close it is -1.
func (i *Interface) FD() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.event.fd
}

// Next returns the next change; false: there is none.
func (i *Interface) Next() (Change, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	c := i.next()
	if c.What == 0 {
		i.event.lower()
	}
	return c, c.What != 0
}

func (i *Interface) next() Change {
	t := &i.reported
	now := i.links[0].public()
	switch {
	case t.gone:
		return Change{}
	case i.gone:
		t.gone = true
		return Change{What: Gone}
	case t.link != now:
		t.link = now
		return Change{What: LinkChanged, Link: now}
	}
	if c := t.nextGID(i.table); c.What != 0 {
		return c
	}
	return i.nextRoute()
}

// nextGID makes one entry of the reported table equal to the present one.
func (t *reported) nextGID(now table) Change {
	for len(t.table) < len(now) {
		t.table = append(t.table, address{})
	}
	for n, a := range now {
		switch before := t.table[n]; {
		case before == a:
		case before != address{}:
			t.table[n] = address{}
			return Change{What: GIDRemoved, GID: before.entry(n)}
		default:
			t.table[n] = a
			return Change{What: GIDAdded, GID: a.entry(n)}
		}
	}
	return Change{}
}

// nextRoute returns the next route that differs from what was reported.
func (i *Interface) nextRoute() Change {
	for len(i.reported.routes) > 0 {
		k := i.reported.routes[0]
		i.reported.routes = i.reported.routes[1:]
		k.queued = false
		what := k.difference()
		k.lastRoute, k.lostReported = k.route, k.err != nil
		if _, kept := i.tracked[k]; kept && what != 0 {
			return Change{What: what, Tracked: k}
		}
	}
	return Change{}
}

// event is an eventfd: it polls readable from raise until lower.
type event struct {
	fd    int
	count [8]byte // as read by lower
}

var noEvent = event{fd: -1}

func newEvent() (event, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return noEvent, fmt.Errorf("make an eventfd: %w", err)
	}
	return event{fd: fd}, nil
}

var one = binary.NativeEndian.AppendUint64(nil, 1)

// raise cannot fail: a counter that is full is readable already.
func (e *event) raise() { _, _ = unix.Write(e.fd, one) }

// lower cannot fail: if the counter is zero there is nothing to lower. One thread at a time calls
// it.
func (e *event) lower() { _, _ = unix.Read(e.fd, e.count[:]) }

// close may be called several times.
func (e *event) close() error {
	if e.fd < 0 {
		return nil
	}
	err := unix.Close(e.fd)
	e.fd = -1
	if err != nil {
		return fmt.Errorf("close the eventfd: %w", err)
	}
	return nil
}
