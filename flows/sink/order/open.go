package order

import (
	"errors"
	"fmt"
	"time"

	"github.com/unifiedd/unifiedd/flows/attach"
	"github.com/unifiedd/unifiedd/flows/attach/wire"
	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/pipeline"
	"github.com/unifiedd/unifiedd/internal/netdev"
	"github.com/unifiedd/unifiedd/internal/osthread"
	"github.com/unifiedd/unifiedd/rdma/roce/network"
	"github.com/unifiedd/unifiedd/umem"
	"github.com/unifiedd/unifiedd/xdp"
)

// Open opens the interface, and prepares the connection, which the flow's begin starts. It uses the network namespace
// of the calling thread.
func Open(e *pipeline.Env) (*Sink, error) {
	o := e.Flow.To.Order
	s := &Sink{region: e.Region, config: *o, holder: e.Holder, halt: e.Halt, limits: newLimits(&o.Limits), begun: time.Now(), replies: &replies{}}
	s.outcomes = make([]wire.Reason, e.Flow.From.Window)
	if e.Flow.Kind() == config.KindNetworkOrder {
		s.rules = newStrategy(&e.Flow)
		s.replies.first = s.rules.session.hear
	}
	if !e.Events { // it spins
		s.rehearsal = new(rehearsal)
	}
	if err := s.openPort(e); err != nil {
		return nil, err
	}
	if err := s.takeFrames(e); err != nil {
		return nil, err
	}
	watched, err := network.Open(o.Interface)
	if err != nil {
		return nil, err
	}
	e.Undo.Add(watched.Close)
	here, err := osthread.Here()
	if err != nil {
		return nil, err
	}
	e.Undo.Add(here.Close)
	s.keeper = newKeeper(o, watched, here, e.Log)
	e.Undo.Add(s.keeper.end)
	if err := s.openTaker(e); err != nil {
		return nil, err
	}
	if !o.Replies {
		return s, nil
	}
	return s, s.replies.open(e, s.Ready)
}

// Ready returns why orders cannot leave yet, or nil. Any goroutine may call it.
func (s *Sink) Ready() error { return s.keeper.notReady() }

// OnEnd says what closes the program's port for orders when the connection has ended. It must be called before Begin.
func (s *Sink) OnEnd(shut func(why string) error) {
	s.keeper.shut = func(why string) error { return errors.Join(shut(why), s.replies.shut(why)) }
}

// SetFree sets the list to which the frames of orders are pushed: that of the source, which is opened after the sink.
func (s *Sink) SetFree(free *umem.FreeList) { s.free = free }

// Node returns the NUMA node of the card, or numa.Unknown.
func (s *Sink) Node() int { return s.net.Node() }

// openPort opens the transmit queue.
func (s *Sink) openPort(e *pipeline.Env) error {
	o := &s.config
	card, err := netdev.Find(o.Interface)
	if err != nil {
		return err
	}
	if err := errors.Join(card.Sends(), card.NeedEthernet("a flow that sends orders")); err != nil {
		return err
	}
	x := xdp.Config{Interface: o.Interface, Holder: e.Holder, Queues: []uint32{uint32(o.Queue)}, Direction: xdp.Send, RingSize: uint32(o.Ring), SendTimes: o.SendTimes}
	if x.Policy, err = xdp.ParsePolicy(string(o.ZeroCopy)); err != nil {
		return err
	}
	if s.net, err = xdp.Open(x); err != nil {
		if errors.Is(err, xdp.ErrQueueBusy) {
			err = fmt.Errorf("%w (another flow or program has queue %d of %s: choose another one with to.order.queue, and say queues in the flow that receives)", err, o.Queue, o.Interface)
		}
		return err
	}
	e.Undo.Add(s.net.Close)
	s.port = s.net.Ports()[0]
	e.Undo.Add(s.port.Close)
	return s.orders.open(e, s.port, s.net.Granted(), o)
}

// openTaker lets a program give connections, if it is to.
func (s *Sink) openTaker(e *pipeline.Env) error {
	if s.config.Given == "" {
		return nil
	}
	if e.Shared.Attach == nil {
		return errors.New("no program can attach: add attach.programs")
	}
	s.replies.others = !s.config.Replies
	t, err := e.Shared.Attach.NewTaker(attach.TakerConfig{Flow: e.Flow.Name, Program: s.config.Given, Take: s.keeper.offer})
	if err == nil {
		e.Undo.Add(t.Close)
	}
	return err
}

// takeFrames takes the frames for segments.
func (s *Sink) takeFrames(e *pipeline.Env) error {
	frames := make([]umem.Frame, s.config.Ring)
	s.total = e.Holder.Take(frames)
	if s.total < len(frames) {
		return fmt.Errorf("the region has %d free frames, and the flow's transmit ring has %d entries: raise region.size, or lower to.order.ring", s.total, len(frames))
	}
	s.orders.number(frames)
	s.own.Push(frames...)
	return nil
}

// isDown reports whether an interface is there and cannot send.
func isDown(err error) bool { return errors.Is(err, xdp.ErrInterfaceDown) }
