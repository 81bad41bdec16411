package network

import (
	"context"
	"fmt"
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
