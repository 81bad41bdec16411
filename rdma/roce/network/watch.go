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
)

const (
	// refreshEvery is the time between two looks at the ways that are kept. A neighbour that is not used grows stale
	// after 15 to 45 seconds.
	refreshEvery = 10 * time.Second
	// settle is how long changes are gathered before all is read again: they come in swarms.
	settle = 5 * time.Millisecond
	// share of the time is spent reading again, at most, however large the tables are and however often they change: 1/share.
	share = 10
)

// stale is what must be read again.
type stale uint8

const (
	staleLinks stale = 1 << iota // and addresses; and then ways, too
	staleWays
)

// watch is the goroutine that listens to the kernel. Its fields are its own.
type watch struct {
	i       *Interface
	socket  *nl.NetlinkSocket
	refresh time.Duration

	stale stale
	due   time.Time // when what is stale is read again
	rest  time.Time // nothing is read before
	tick  time.Time // when ways are looked at next
}

// newWatch subscribes to what the kernel tells about links, addresses, routes and neighbours.
func newWatch(i *Interface, refresh time.Duration) (*watch, error) {
	s, err := nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR,
		unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE, unix.RTNLGRP_NEIGH)
	if err != nil {
		return nil, fmt.Errorf("listen to netlink: %w", err)
	}
	return &watch{i: i, socket: s, refresh: refresh, tick: time.Now().Add(refresh)}, nil
}

// run ends when the Interface is closed, or gone.
func (w *watch) run() {
	defer close(w.i.ended)
	for w.open() {
		w.listen()
		now := time.Now()
		if !now.Before(w.tick) {
			w.tick = now.Add(w.refresh)
			w.mark(staleWays)
		}
		if w.stale != 0 && !now.Before(w.due) {
			w.catchUp()
		}
	}
}

func (w *watch) open() bool {
	w.i.mu.Lock()
	defer w.i.mu.Unlock()
	return w.i.unusable() == nil
}

// mark notes that something must be read again, once changes have settled.
func (w *watch) mark(s stale) {
	if w.stale == 0 {
		w.due = time.Now().Add(settle)
		if w.due.Before(w.rest) {
			w.due = w.rest
		}
	}
	w.stale |= s
}

// listen takes what the kernel says next, or returns when it is time for something else.
func (w *watch) listen() {
	until := w.tick
	if w.stale != 0 && w.due.Before(until) {
		until = w.due
	}
	wait := time.Until(until)
	if wait < time.Microsecond {
		return
	}
	tv := unix.NsecToTimeval(wait.Nanoseconds())
	_ = w.socket.SetReceiveTimeout(&tv) // only notes it
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

// missed notes that the kernel said something that was not heard, in most cases because the socket's buffer
// was full.
func (w *watch) missed(err error) {
	if !w.open() {
		return // the socket was closed
	}
	if errors.Is(err, unix.ENOBUFS) {
		w.i.counter.overruns.Add(1)
	} else {
		w.i.counter.failures.Add(1)
		time.Sleep(settle) // or it would spin if this went on
	}
	w.mark(staleLinks | staleWays)
}

// hear takes one message. In those of all three kinds but routes the index of an interface follows the first four bytes.
func (w *watch) hear(m *syscall.NetlinkMessage) {
	switch m.Header.Type {
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		w.mark(staleWays)
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
			w.mark(staleLinks)
		}
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		if ours {
			w.mark(staleLinks)
		}
	case unix.RTM_NEWNEIGH, unix.RTM_DELNEIGH:
		if ours {
			w.hearNeighbour(m)
		}
	}
}

// hearNeighbour takes what has become of one; bridges tell of MAC addresses without an IP address.
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
	if ok && w.i.learn(hop{e.LinkIndex, ip}, n) {
		w.mark(staleWays)
	}
}

// parent is the index of the interface that the one of a message lies on; 0: none.
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

// catchUp reads again what is stale, and what follows from it.
func (w *watch) catchUp() {
	begun, what := time.Now(), w.stale
	w.stale = 0
	if what&staleLinks != 0 {
		w.rereadLinks()
	}
	for _, k := range w.i.allKept() {
		w.i.reroute(k)
	}
	now := time.Now()
	w.rest = now.Add(share * now.Sub(begun))
}

// rereadLinks reads links and addresses. What cannot be read is asked for again.
func (w *watch) rereadLinks() {
	err := w.i.reread()
	w.i.counter.rereads.Add(1)
	switch {
	case errors.Is(err, ErrInterfaceGone):
		w.i.vanish()
	case err != nil && !errors.Is(err, ErrClosed):
		w.i.counter.failures.Add(1)
		w.mark(staleLinks)
	}
	w.i.announce()
}

// announce makes FD readable, so that Next compares.
func (i *Interface) announce() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.event.raise()
}

// vanish notes that there is no such interface any longer.
func (i *Interface) vanish() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.gone = true
	i.links = i.links[:1]
	i.links[0].up = false
	i.table = nil
	for k := range i.kept {
		k.err, k.next = ErrInterfaceGone, Way{}
	}
}

func (i *Interface) allKept() []*Kept {
	i.mu.Lock()
	defer i.mu.Unlock()
	all := make([]*Kept, 0, len(i.kept))
	for k := range i.kept {
		all = append(all, k)
	}
	return all
}
