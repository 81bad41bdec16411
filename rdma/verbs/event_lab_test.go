//go:build verbs && cgo

package verbs

import (
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma"
)

// TestEvents: a program gets the events that it waits for, and no others.
func TestEvents(t *testing.T) {
	labenv.Guest(t)
	b := newBench(t, everything)
	b.run(map[string]func(*bench){"completions": completionEvents, "several": severalEvents, "solicited": solicitedEvents, "shared queue": sharedQueueEvents, "port": portEvents,
		"without": withoutEvents, "overrun": overrun})
}

// readable waits until a descriptor polls readable.
func readable(fd int, limit time.Duration) bool {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(limit.Milliseconds()))
	return n == 1 && err == nil
}

func (e *end) arm(solicited bool) {
	e.t.Helper()
	testenv.Must(e.t, e.cq.Arm(solicited))
}

// event waits for an event of the completion queue, and acknowledges it.
func (e *end) event() {
	e.t.Helper()
	if !readable(e.cq.FD(), 10*time.Second) {
		e.t.Fatal("no event came in 10 s")
	}
	if n, err := e.cq.Acknowledge(); n != 1 || err != nil {
		e.t.Errorf("%d events, %v", n, err)
	}
	e.noEvent()
}

func (e *end) noEvent() {
	e.t.Helper()
	if readable(e.cq.FD(), 20*time.Millisecond) {
		e.t.Error("there is an event")
	}
	if n, err := e.cq.Acknowledge(); n != 0 || err != nil {
		e.t.Errorf("%d events, %v", n, err)
	}
}

func (x *end) sendTo(y *end, f rdma.Flags) {
	x.t.Helper()
	y.receive(7, x.b.sge(destination, 64))
	x.send(rdma.SendRequest{ID: 1, Op: rdma.Send, Flags: f | rdma.Signaled}, x.b.sge(source, 8))
	x.want(1, rdma.Success)
}

func completionEvents(b *bench) {
	x, y := b.pair(config(rdma.RC))
	y.noEvent()
	y.arm(false)
	x.sendTo(y, 0)
	y.event() // one event, for any number of completions
	x.sendTo(y, 0)
	y.noEvent()
	y.want(7, rdma.Success)
	y.want(7, rdma.Success)
}

// severalEvents: events that are not acknowledged add up, and arming twice gives one event.
func severalEvents(b *bench) {
	x, y := b.pair(config(rdma.RC))
	for range 3 {
		y.arm(false)
		x.sendTo(y, 0)
	}
	if n, err := y.cq.Acknowledge(); n != 3 || err != nil {
		b.t.Errorf("%d events of 3, %v", n, err)
	}
	y.noEvent()
	for range 3 {
		y.arm(false)
		y.arm(false)
		y.noEvent()
		x.sendTo(y, 0)
		y.event()
	}
	for range 6 {
		y.want(7, rdma.Success)
	}
}

// solicitedEvents: only a solicited message causes an event. (A failure should cause one too, but
// does not on Soft-RoCE.)
func solicitedEvents(b *bench) {
	x, y := b.pair(config(rdma.RC))
	y.arm(true)
	x.sendTo(y, 0)
	y.noEvent()
	x.sendTo(y, rdma.Solicited)
	y.event()
}

func withoutEvents(b *bench) {
	cq := testenv.Opened(b.t, func() (rdma.CompletionQueue, error) {
		return b.dev.NewCompletionQueue(rdma.CompletionQueueConfig{Depth: 1})
	})
	_, err := cq.Acknowledge()
	refused(b.t, err, nil, "without Events")
	refused(b.t, cq.Arm(false), nil, "without Events")
	if cq.FD() != -1 {
		b.t.Errorf("descriptor %d", cq.FD())
	}
}

// occurs waits for an event of the device.
func (b *bench) occurs(want rdma.EventKind) rdma.Event {
	b.t.Helper()
	var others []rdma.Event
	for readable(b.dev.EventFD(), 10*time.Second) {
		e, ok, err := b.dev.NextEvent()
		testenv.Must(b.t, err)
		if ok && e.Kind == want {
			return e
		}
		others = append(others, e)
	}
	b.t.Fatalf("no event %v came in 10 s, only %v", want, others)
	return rdma.Event{}
}

// sharedQueueEvents: several queue pairs take receives from one queue, and an event says when few
// are left.
func sharedQueueEvents(b *bench) {
	shared := testenv.Opened(b.t, func() (rdma.SharedReceiveQueue, error) {
		return b.pd.NewSharedReceiveQueue(rdma.SharedReceiveQueueConfig{Depth: 16, SGEs: 1})
	})
	var requests []rdma.ReceiveRequest
	var sges []rdma.SGE
	for id := range uint64(3) {
		requests = append(requests, rdma.ReceiveRequest{ID: id, SGEs: 1})
		sges = append(sges, b.sge(destination+id*64, 64))
	}
	if n, err := shared.PostReceive(requests, sges); n != 3 || err != nil {
		b.t.Fatalf("%d, %v", n, err)
	}
	testenv.Must(b.t, shared.Limit(2))
	c := config(rdma.RC)
	c.Shared = shared
	for id := range uint64(3) {
		x, y := b.end(config(rdma.RC)), b.end(c)
		x.connect(y.qp.QPN())
		y.connect(x.qp.QPN())
		_, err := y.qp.PostReceive(requests, sges)
		refused(b.t, err, nil, "post to that")
		x.send(rdma.SendRequest{ID: 1, Op: rdma.Send, Flags: rdma.Signaled}, b.sge(source, 8))
		x.want(1, rdma.Success)
		y.want(id, rdma.Success)
		refused(b.t, shared.Close(), nil, "queue pair")
	}
	b.occurs(rdma.SharedQueueLimit)
	refused(b.t, shared.Limit(0), nil, "it must be")
	many := make([]rdma.ReceiveRequest, 1000)
	n, err := shared.PostReceive(many, nil)
	refused(b.t, err, unix.ENOMEM, "is full")
	if n < 16 || n == len(many) {
		b.t.Errorf("a queue of 16 took %d", n)
	}
}

// portEvents: the state of the port follows the link of the card.
func portEvents(b *bench) {
	link, err := netlink.LinkByName(card)
	testenv.Must(b.t, err)
	for _, c := range []struct {
		set  func(netlink.Link) error
		want rdma.EventKind
	}{{netlink.LinkSetDown, rdma.PortError}, {netlink.LinkSetUp, rdma.PortActive}} {
		testenv.Must(b.t, c.set(link))
		if e := b.occurs(c.want); e.Port != 1 {
			b.t.Errorf("%v of port %d", e.Kind, e.Port)
		}
		p, err := b.dev.Port(1)
		if err != nil || p.Active != (c.want == rdma.PortActive) || p.Active != (p.State == "ACTIVE") || p.LinkLayer != rdma.LinkEthernet {
			b.t.Errorf("%+v, %v", p, err)
		}
	}
	if e, ok, err := b.dev.NextEvent(); ok && !slices.Contains([]rdma.EventKind{rdma.GIDChange, rdma.PortActive}, e.Kind) || err != nil {
		b.t.Errorf("%v, %v", e, err)
	}
	if p, err := b.dev.GIDs(1); err != nil || len(p) < 2 {
		b.t.Errorf("%v, %v", p, err)
	}
}

// overrun: a full completion queue causes an event.
func overrun(b *bench) {
	x, y := b.end(config(rdma.RC)), b.end(config(rdma.RC))
	small := testenv.Opened(b.t, func() (rdma.CompletionQueue, error) {
		return b.dev.NewCompletionQueue(rdma.CompletionQueueConfig{Depth: 4})
	})
	c := config(rdma.RC)
	c.SendCQ, c.ReceiveCQ = small, small
	x.qp, x.cq = testenv.Opened(b.t, func() (rdma.QueuePair, error) { return b.pd.NewQueuePair(c) }), small
	x.connect(y.qp.QPN())
	y.connect(x.qp.QPN())
	for range small.Depth() + 2 {
		x.send(rdma.SendRequest{Op: rdma.Write, Flags: rdma.Signaled, RKey: b.memory.RKey(), RemoteAddr: b.memory.Addr()})
	}
	b.occurs(rdma.CompletionQueueError)
}
