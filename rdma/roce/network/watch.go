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

// refreshEvery is the time between two looks at the ways that are kept. A neighbour that is not used grows stale
// after 15 to 45 seconds.
const refreshEvery = 10 * time.Second

// watch is the goroutine that listens to the kernel. Its fields are its own.
type watch struct {
	i       *Interface
	socket  *nl.NetlinkSocket
	refresh time.Duration

	links pendingRefresh // and addresses
	ways  pendingRefresh // those that are kept
	tick  time.Time      // when ways are looked at unasked
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
		if now := time.Now(); !now.Before(w.tick) {
			w.tick = now.Add(w.refresh)
			w.ways.want()
		}
		w.links.do(w.rereadLinks)
		if !w.links.wanted() { // or ways would be looked up from addresses that have gone
			w.ways.do(w.i.rerouteAll)
		}
	}
}

func (w *watch) open() bool {
	w.i.mu.Lock()
	defer w.i.mu.Unlock()
	return w.i.unusable() == nil
}

// listen takes what the kernel says next, or returns when it is time for something else.
func (w *watch) listen() {
	until := w.links.by(w.tick)
	if !w.links.wanted() {
		until = w.ways.by(until)
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
	w.links.want()
	w.ways.want()
}

// hear takes one message. In all but those of routes the index of an interface follows the first four bytes.
func (w *watch) hear(m *syscall.NetlinkMessage) {
	switch m.Header.Type {
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		w.ways.want()
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
	w.i.order.Lock()
	defer w.i.order.Unlock()
	if ok && w.i.learn(neighbourKey{e.LinkIndex, ip}, n) {
		w.ways.want()
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

// rereadLinks reads links and addresses, on which ways depend. What cannot be read is asked for again.
func (w *watch) rereadLinks() {
	err := w.i.reread()
	w.i.counter.rereads.Add(1)
	switch {
	case errors.Is(err, ErrInterfaceGone):
		w.i.vanish()
	case err != nil && !errors.Is(err, ErrClosed):
		w.i.counter.failures.Add(1)
		w.links.want()
	}
	w.ways.want()
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
	for k := range i.tracked {
		k.err, k.next = ErrInterfaceGone, Route{}
	}
}
