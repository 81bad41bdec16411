//go:build verbs && cgo

package verbs

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/msg"
	"github.com/unifiedd/unifiedd/umem"
	"github.com/unifiedd/unifiedd/umem/porttest"
)

// TestMessagePortContract: ports of every transport keep the contract of ports.
func TestMessagePortContract(t *testing.T) {
	labenv.Guest(t)
	p := newPortBench(t)
	for _, c := range []struct {
		portShape
		shown string
	}{
		{portShape{transport: rdma.RC, events: true}, byPairs},
		{portShape{transport: rdma.RC}, byPairs},
		{portShape{transport: rdma.RC, pairs: 3, events: true}, ""},
		{portShape{transport: rdma.UC, events: true}, byPairs},
		{portShape{transport: rdma.UD, events: true}, ""},
		{portShape{transport: rdma.UD, pairs: 2}, "a port of datagrams with one queue pair shows it"},
	} {
		t.Run(c.name(), func(t *testing.T) {
			long(t, c.shown)
			p.contract(t, c.portShape)
		})
	}
}

// byPairs names the test that covers, in the short form, the behaviour common to all ports.
const byPairs = "a port of three queue pairs shows it"

// ofDatagrams are the cases whose outcome depends on messages being datagrams.
var ofDatagrams = []string{"Data", "Failure", "Close", "Random"}

func (s portShape) name() string {
	return fmt.Sprintf("%v/pairs=%d/events=%v", s.transport, s.pairs, s.events)
}

func (p *portBench) contract(t *testing.T, s portShape) {
	for _, c := range porttest.Cases() {
		if c.Name == "Poll" && !s.events {
			continue // without events there is no descriptor to wait on
		}
		t.Run(c.Name, func(t *testing.T) {
			if s.transport == rdma.UD && !slices.Contains(ofDatagrams, c.Name) {
				long(t, byPairs)
			}
			of := p.on(t)
			c.Check(t, func(testing.TB) *porttest.Link { return of.messageLink(s) })
		})
	}
}

// messageLink makes two ports for the contract's suite.
func (p *portBench) messageLink(s portShape) *porttest.Link {
	l := p.link(func(l *porttest.Link) { l.Sender, l.Receiver = p.open(s) })
	if s.transport == rdma.UD {
		l.Max, l.Scratch = p.mtu.Bytes(), rdma.GRHBytes
	}
	if s.pairs > 0 {
		by := uint16(s.pairs - 1)
		l.Prepare = func(_, _ int, f *umem.Frame) { p.region.Side(*f).Queue = by }
	}
	return l
}

// TestMessagePort: behaviour of message ports beyond the contract of ports.
func TestMessagePort(t *testing.T) {
	labenv.Guest(t)
	newPortBench(t).run(map[string]func(*portBench){"side": messageSide, "no receive": messageNoReceive, "too long": messageTooLong, "no peer": messageNoPeer,
		"flushed": messageFlushed, "detach": messageDetach, "alone": messageAlone, "counters": messageCounters, "config": messageConfig})
}

// messageSide: the side entry of a received frame names the queue pair, and for datagrams has a
// block.
func messageSide(base *portBench) {
	t := base.t
	for _, s := range []portShape{{transport: rdma.RC, pairs: 3}, {transport: rdma.UD, pairs: 3}} {
		t.Run(s.name(), func(t *testing.T) {
			p := base.on(t)
			a, b := p.open(s)
			full := p.frames(3, 100)
			for i := range full {
				p.region.Side(full[i]).Queue = uint16(2 - i)
			}
			for i, f := range full {
				p.region.Bytes(f)[0] = byte(2 - i)
			}
			p.supply(b, 3)
			p.mustSend(a, full)
			fs := take(t, "three messages", 3, b, b.Recv)
			for _, f := range fs {
				by := p.region.Bytes(f)[0]
				if side := p.region.Side(f); side.Queue != uint16(by) || side.Target != 0 || (side.Block != 0) != (s.transport == rdma.UD) {
					t.Errorf("the message by queue pair %d: %+v", by, *side)
				}
			}
			p.worker.Give(fs)
			p.worker.Give(take(t, "the frames back", 3, a, a.Reap))
		})
	}
}

func (p *portBench) supply(to umem.Port, n int) {
	p.t.Helper()
	fs := p.frames(n, 0)
	if got := to.Supply(fs); got != n {
		p.t.Fatalf("Supply took %d of %d frames", got, n)
	}
	testenv.Must(p.t, to.Kick())
}

func (p *portBench) mustSend(by umem.Port, full []umem.Frame) {
	p.t.Helper()
	if n := by.Send(full); n != len(full) {
		p.t.Fatalf("Send took %d of %d frames", n, len(full))
	}
	testenv.Must(p.t, by.Kick())
}

// messageNoReceive: the peer posts no receives.
func messageNoReceive(p *portBench) {
	t := p.t
	a, b := p.open(portShape{transport: rdma.RC, rnr: 1})
	p.mustSend(a, p.frames(3, 100))
	fs := take(t, "the frames back", 3, a, a.Reap)
	wantErr(t, "the first", fs[:1], unix.ENOBUFS)
	wantErr(t, "the others", fs[1:], unix.ECANCELED)
	wantCause(t, a, 0, rdma.ReceiverNotReadyExceeded)
	wantCause(t, b, 0, rdma.Success)
	if s := a.Stats(); s.Failed[rdma.ReceiverNotReadyExceeded] != 1 || s.Failed[rdma.WorkFlushed] != 2 || s.Sent != 0 {
		t.Errorf("%+v", s)
	}
	p.worker.Give(fs)
}

func wantCause(t *testing.T, p *msg.Port, number int, want rdma.Status) {
	t.Helper()
	if err := p.Cause(number); (want != rdma.Success || err != nil) && !errors.Is(err, want) {
		t.Errorf("the cause is %v, want %v", err, want)
	}
}

// messageTooLong: the port refuses a message that is too long for the queue pair, and the peer one
// that is too long for its receive.
func messageTooLong(p *portBench) {
	t := p.t
	s := portShape{transport: rdma.RC}
	ca, cb := p.config("a", s), p.config("b", s)
	ca.QueuePairs[0].Message = 8000
	p.join(&ca, &cb, s)
	a, b := p.openPort(ca), p.openPort(cb)
	p.supply(b, 2)
	p.mustSend(a, chained(p.frames(3, 3000)))
	p.wantBack(a, "9000 bytes", 3, unix.EMSGSIZE)
	wantCause(t, a, 0, rdma.Success)
	p.mustSend(a, chained(p.frames(5, 100)))
	p.wantBack(a, "five pieces", 5, unix.EMSGSIZE)
	p.mustSend(a, chained(p.frames(2, 3000)))
	p.tooLongForReceive(a, b)
	if n := a.Stats().Refused; n != 2 {
		t.Errorf("%d messages refused", n)
	}
}

// tooLongForReceive expects the statuses of the specification, or those of Soft-RoCE.
func (p *portBench) tooLongForReceive(a, b *msg.Port) {
	p.t.Helper()
	at, to := rdma.RemoteInvalidRequest, rdma.LocalLength
	sent, got := take(p.t, "the message back", 2, a, a.Reap), take(p.t, "the receives", 2, b, b.Recv)
	if errors.Is(a.Cause(0), rdma.RemoteOperation) {
		at, to = rdma.RemoteOperation, rdma.LocalQPOperation
	}
	wantErr(p.t, "a message longer than its receive", sent, at.Errno())
	wantCause(p.t, a, 0, at)
	wantErr(p.t, "the receive of it", got[:1], to.Errno())
	wantErr(p.t, "the other", got[1:], unix.ECANCELED)
	wantCause(p.t, b, 0, to)
	p.worker.Give(append(sent, got...))
}

// wantBack checks that frames return from a failed send.
func (p *portBench) wantBack(a umem.Port, what string, n int, want error) {
	p.t.Helper()
	fs := take(p.t, "the frames back of "+what, n, a, a.Reap)
	wantErr(p.t, what, fs, want)
	p.worker.Give(fs)
}

// chained makes one message out of frames.
func chained(fs []umem.Frame) []umem.Frame {
	for i := range fs[:len(fs)-1] {
		fs[i].Options |= umem.More
	}
	return fs
}

// messageNoPeer: the peer's queue pair is in error, or is closed.
func messageNoPeer(base *portBench) {
	t := base.t
	s := portShape{transport: rdma.RC}
	t.Run("error", func(t *testing.T) {
		p := base.on(t)
		ca, cb := p.config("a", s), p.config("b", s)
		p.join(&ca, &cb, s)
		a, b := p.openPort(ca), p.openPort(cb)
		p.supply(b, 8)
		testenv.Must(t, cb.QueuePairs[0].QueuePair.Modify(rdma.Attributes{State: rdma.Error}, rdma.MaskState))
		fs := take(t, "the receives flushed", 8, b, b.Recv)
		wantErr(t, "flushed", fs, unix.ECANCELED)
		p.worker.Give(fs)
		wantCause(t, b, 0, rdma.WorkFlushed)
		p.unanswered(a)
	})
	t.Run("gone", func(t *testing.T) {
		p := base.on(t)
		a, b := p.open(s)
		p.supply(b, 8)
		testenv.Must(t, b.Close())
		p.unanswered(a)
	})
}

// unanswered sends to a peer that does not answer.
func (p *portBench) unanswered(a *msg.Port) {
	p.t.Helper()
	p.mustSend(a, p.frames(4, 100))
	fs := take(p.t, "the frames back", 4, a, a.Reap)
	wantErr(p.t, "the first", fs[:1], unix.ETIMEDOUT)
	wantErr(p.t, "the others", fs[1:], unix.ECANCELED)
	wantCause(p.t, a, 0, rdma.RetryExceeded)
	p.mustSend(a, fs)
	p.wantBack(a, "what was sent afterwards", 4, unix.ECANCELED)
	wantCause(p.t, a, 0, rdma.RetryExceeded)
}

// messageFlushed: a failed queue pair returns all outstanding frames, and the port's other queue
// pairs still work.
func messageFlushed(p *portBench) {
	t := p.t
	s := portShape{transport: rdma.RC, pairs: 2, rnr: 7}
	ca, cb := p.config("a", s), p.config("b", s)
	p.join(&ca, &cb, s)
	a, b := p.openPort(ca), p.openPort(cb)
	full := p.frames(20, 100) // there are no receives, so all wait
	p.mustSend(a, full)
	testenv.Must(t, ca.QueuePairs[0].QueuePair.Modify(rdma.Attributes{State: rdma.Error}, rdma.MaskState))
	p.wantBack(a, "what was outstanding", 20, unix.ECANCELED)
	wantCause(t, a, 0, rdma.WorkFlushed)
	wantCause(t, a, 1, rdma.Success)
	p.passes(a, b, 1)
}

// passes sends a message from one of a's queue pairs to b.
func (p *portBench) passes(a, b *msg.Port, number uint16) {
	p.t.Helper()
	p.supply(b, 1)
	full := p.frames(1, 100)
	p.region.Side(full[0]).Queue = number
	p.mustSend(a, full)
	got := take(p.t, "a message", 1, b, b.Recv)
	wantErr(p.t, "received", got, nil)
	p.worker.Give(got)
	p.wantBack(a, "sent", 1, nil)
}

// messageDetach: queue pairs can be attached and detached with frames outstanding, and the port and
// its other queue pairs still work.
func messageDetach(p *portBench) {
	t := p.t
	s := portShape{transport: rdma.RC, pairs: 2}
	ca, cb := p.config("a", s), p.config("b", s)
	p.join(&ca, &cb, s)
	a, b := p.openPort(ca), p.openPort(cb)
	for round := range times(20) {
		p.mustSend(a, p.frames(20, 100))
		p.mustDetach(a, 0)
		p.wantBack(a, "what was outstanding", 20, unix.ECANCELED)
		p.mustSend(a, p.frames(3, 100))
		p.wantBack(a, "sent by a queue pair that is gone", 3, unix.ENOTCONN)
		p.mustDetach(b, 0)
		p.passes(a, b, 1)
		p.attach(a, b, &ca, &cb, s)
		p.passes(a, b, 0)
		if a.Cause(0) != nil || a.Cause(1) != nil {
			t.Fatalf("round %d: %v, %v", round, a.Cause(0), a.Cause(1))
		}
	}
	if a.Detach(7) == nil {
		t.Error("a queue pair that is not there was detached")
	}
}

// mustDetach closes a queue pair as owners do that must not wait on the worker's thread.
func (p *portBench) mustDetach(a *msg.Port, number int) {
	p.t.Helper()
	closeQueue, err := a.Part(number)
	testenv.Must(p.t, err)
	if a.SendControl(number, 0, 1, true) {
		p.t.Error("a queue pair that is being closed takes a message")
	}
	done := make(chan error)
	go func() { done <- closeQueue() }()
	testenv.Must(p.t, <-done)
	testenv.Must(p.t, a.Detach(number))
}

// attach adds a queue pair to both ports, as number 0.
func (p *portBench) attach(a, b *msg.Port, ca, cb *msg.Config, s portShape) {
	p.t.Helper()
	x, y := p.peer(ca, s), p.peer(cb, s)
	p.joinPeers(&x, &y, s)
	m, err1 := a.Attach(x)
	n, err2 := b.Attach(y)
	if err := errors.Join(err1, err2); err != nil || m != 0 || n != 0 {
		p.t.Fatalf("numbers %d and %d, %v", m, n, err)
	}
}

// messageAlone: a port with its own receive queue accepts no further queue pairs.
func messageAlone(p *portBench) {
	t := p.t
	s := portShape{transport: rdma.RC}
	c := p.config("a", s)
	more := p.peer(&c, s)
	a := p.openPort(c)
	if n, err := a.Attach(more); err == nil {
		t.Errorf("another queue pair is number %d", n)
	}
	testenv.Check(t, more.QueuePair.Close())
}

// messageCounters: a port counts messages and bytes in each direction.
func messageCounters(p *portBench) {
	t := p.t
	a, b := p.open(portShape{transport: rdma.RC})
	p.supply(b, 3)
	full := append(chained(p.frames(2, 500)), p.frames(2, 100)...)
	p.mustSend(a, full)
	p.wantBack(a, "sent", 4, nil)
	got := take(t, "three messages", 3, b, b.Recv)
	p.worker.Give(got)
	if got[0].Len != 1000 || got[1].Len != 100 {
		t.Errorf("lengths %d and %d", got[0].Len, got[1].Len)
	}
	if s := a.Stats(); s.Sent != 3 || s.BytesSent != 1200 || s.Received+s.Refused != 0 || len(s.Failed) != 0 {
		t.Errorf("the sender counts %+v", s)
	}
	if s := b.Stats(); s.Received != 3 || s.BytesReceived != 1200 || s.Sent+s.Refused+s.Immediates != 0 || len(s.Failed) != 0 {
		t.Errorf("the receiver counts %+v", s)
	}
}

// messageConfig: msg.Open refuses an invalid configuration, and closes the objects in it.
func messageConfig(p *portBench) {
	t := p.t
	rc, ud := portShape{transport: rdma.RC}, portShape{transport: rdma.UD}
	for name, c := range map[string]struct {
		s     portShape
		spoil func(*msg.Config)
	}{
		"no worker":              {rc, func(c *msg.Config) { c.Worker = nil }},
		"no memory":              {rc, func(c *msg.Config) { c.Memory = nil }},
		"one completion queue":   {rc, func(c *msg.Config) { c.SendCQ = c.ReceiveCQ }},
		"no queue pair":          {rc, func(c *msg.Config) { c.QueuePairs[0].QueuePair.Close(); c.QueuePairs = nil }},
		"landing":                {rc, func(c *msg.Config) { c.Landing = 4096 }},
		"no longest message":     {rc, func(c *msg.Config) { c.QueuePairs[0].Message = 0 }},
		"datagrams among others": {ud, func(c *msg.Config) { c.Datagrams = false }},
		"no room for a header":   {ud, func(c *msg.Config) { c.Landing = 20 }},
		"no events":              {rc, func(c *msg.Config) { c.Events = true }},
		"no handle":              {ud, func(c *msg.Config) { c.QueuePairs[0].Handle.Close(); c.QueuePairs[0].Handle = nil }},
	} {
		t.Run(name, func(t *testing.T) {
			of := p.on(t)
			config := of.config("refused", c.s)
			whole := config
			c.spoil(&config)
			port, err := msg.Open(config)
			if err := whole.SendCQ.Close(); err != nil { // a config without it leaves it open
				t.Error(err)
			}
			if err == nil {
				port.Close()
				t.Fatal("it was opened")
			}
			t.Log(err)
		})
	}
}
