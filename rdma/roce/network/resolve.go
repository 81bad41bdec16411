package network

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/unifiedd/unifiedd/rdma"
)

// Resolve finds the way from a place of the table to a peer or a group. Where the kernel does not know the next hop's MAC, it is made
// to ask, and Resolve waits for the answer: until ctx ends, or the kernel gives up, which is after three seconds
// as it comes.
//
// The error names the peer and what to do, and is one of ErrSource, ErrNoRoute, ErrUnanswered, ErrInterfaceDown,
// ErrInterfaceGone, ErrPermission and ErrClosed. When ctx ends it is ErrUnanswered and the context's.
func (i *Interface) Resolve(ctx context.Context, place int, destination rdma.GID) (Way, error) {
	w, err := i.resolve(ctx, place, destination)
	if err != nil {
		return Way{}, fmt.Errorf("find the way to %v from %s: %w", destination, i.placeName(place), err)
	}
	return w, nil
}

func (i *Interface) resolve(ctx context.Context, place int, destination rdma.GID) (Way, error) {
	w, err := i.lead(place, destination)
	if err != nil || !w.NextHop.IsValid() {
		return w, err
	}
	w.DestinationMAC, err = i.await(ctx, w.hop())
	return w, err
}

// lead is a way but for the MAC of its next hop, if it has one.
func (i *Interface) lead(place int, destination rdma.GID) (Way, error) {
	w, err := i.begin(place, destination)
	switch {
	case err != nil:
		return w, err
	case destination.Addr().IsMulticast():
		w.HopLimit = defaultHopLimit
		w.DestinationMAC, err = GroupMAC(destination)
		return w, err
	case i.isOwn(destination):
		w.Local, w.DestinationMAC, w.HopLimit = true, w.SourceMAC, defaultHopLimit
		return w, nil
	}
	return w, i.kernel.route(&w)
}

// begin is the part of a way that the source decides.
func (i *Interface) begin(place int, destination rdma.GID) (Way, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if err := i.unusable(); err != nil {
		return Way{}, err
	}
	if place < 0 || place >= len(i.table) || i.table[place] == (address{}) {
		return Way{}, fmt.Errorf("%w: place %d of the table of GIDs is empty (it has %v)", ErrSource, place, places(i.table))
	}
	from := i.table[place]
	if from.gid.Is4() != destination.Is4() {
		return Way{}, fmt.Errorf("%w: one is IPv4 and the other IPv6 (choose one of %v)", ErrSource, places(i.table))
	}
	if !destination.Addr().IsMulticast() && !isHost(destination.Addr()) {
		return Way{}, fmt.Errorf("%w: no host on a network has such an address", ErrNoRoute)
	}
	l := i.links[slices.IndexFunc(i.links, func(l link) bool { return l.index == from.link })]
	if !l.up {
		return Way{}, fmt.Errorf("%w: %s (see: ip link; ip link set %s up)", ErrInterfaceDown, l.name, l.name)
	}
	return Way{Place: place, Source: from.gid, Destination: destination, SourceMAC: l.mac, Tags: l.tags, MTU: min(l.mtu, i.links[0].mtu), link: l.index}, nil
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

// How long await pauses before it looks again: an answer on a local network takes well under a millisecond.
const (
	firstPause = 100 * time.Microsecond
	lastPause  = 50 * time.Millisecond
)

// await is the MAC of a neighbour, for which the kernel asks where it must.
func (i *Interface) await(ctx context.Context, of hop) (MAC, error) {
	n, err := i.kernel.neighbour(of)
	if err != nil || n.valid() && !n.idle() {
		return n.mac, err
	}
	if err := i.kernel.use(of); err != nil && (!n.valid() || !errors.Is(err, ErrPermission)) {
		return MAC{}, err
	}
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		n, err := i.kernel.neighbour(of)
		switch {
		case err != nil || n.valid():
			return n.mac, err
		case n.silent():
			return MAC{}, fmt.Errorf("%w: %v (check that it is up and on this link)", ErrUnanswered, of.ip)
		}
		if err := i.sleep(ctx, pause); errors.Is(err, ErrClosed) {
			return MAC{}, err
		} else if err != nil {
			return MAC{}, fmt.Errorf("%w: %v: %w (check that it is up and on this link)", ErrUnanswered, of.ip, err)
		}
	}
}

// sleep waits, unless ctx ends or the Interface is closed.
func (i *Interface) sleep(ctx context.Context, pause time.Duration) error {
	t := time.NewTimer(pause)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-i.done:
		return ErrClosed
	case <-t.C:
		return nil
	}
}
