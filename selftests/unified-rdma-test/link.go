package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/connect"
	"github.com/unifiedd/unifiedd/umem"
)

// link is a connected queue pair, with memory for messages to send and to receive.
type link struct {
	*session
	job
	op      rdma.Op
	ctx     context.Context
	qp      rdma.QueuePair
	sent    rdma.CompletionQueue
	came    rdma.CompletionQueue
	conn    *connect.Conn      // nil if the peer is another program
	remote  connect.Parameters // of the peer
	handle  rdma.AddressHandle
	granted rdma.MemoryRegion // memory that the peer may access: in
	theirs  connect.Grant     // the peer's memory that we may access

	slots  int    // number of message slots in each direction
	stride uint64 // bytes from one slot to the next
	in     uint64 // address of the first receive slot
	out    uint64 // address of the first send slot

	sends    []rdma.SendRequest
	recvs    []rdma.ReceiveRequest
	sges     []rdma.SGE
	element  [1]rdma.SGE // of sends[0], the request that a latency test posts again and again
	polled   []rdma.WorkCompletion
	waiting  time.Time
	reposted int       // slot of the next receive to post
	taken    int       // messages of a latency test whose receives are not reposted yet
	answers  int       // for giveWay
	gave     time.Time // when it last did
	open     int       // requests of a latency test without a known completion
}

// newLink makes the queue pair, takes memory for it, and brings it to INIT.
func newLink(ctx context.Context, s *session, j job) (l *link, local connect.Parameters, err error) {
	l = &link{session: s, job: j, ctx: ctx}
	l.op, _ = j.op()
	if err := l.fits(); err != nil {
		return l, local, err
	}
	l.slots, l.stride = j.slotting()
	var areas [2]umem.Frame
	if n := s.worker.TakeExtents(areas[:]); n < 2 {
		return l, local, errors.New("the region has no room for the messages")
	}
	l.in, l.out = areas[0].Addr, areas[1].Addr
	if err := l.make(); err != nil {
		return l, local, err
	}
	s.settings.Access = l.granted.Access() & rdma.Remote
	if j.Test == bandwidthTest {
		s.settings.RNRRetries = 7 // without limit: a peer that waits for a processor is slow, but has not failed
	}
	local, err = connect.Prepare(s.device, l.qp, s.settings)
	return l, local, err
}

// fits returns an error for a message that exceeds the port's limit. Soft-RoCE would drop a
// datagram that is too long without an error.
func (l *link) fits() error {
	mtu := uint64(l.port.ActiveMTU.Bytes())
	if l.Transport == rdma.UD && l.Size > mtu {
		return fmt.Errorf("datagrams of %d bytes do not fit the MTU of %s, %d bytes: %w", l.Size, l.device.Name(), mtu, rdma.LocalLength)
	}
	if l.Size > uint64(l.port.MaxMessage) {
		return fmt.Errorf("messages of %d bytes are longer than the %d that %s takes: %w", l.Size, l.port.MaxMessage, l.device.Name(), rdma.LocalLength)
	}
	return nil
}

// make makes the queues and the memory that the peer may access.
func (l *link) make() (err error) {
	l.granted, err = keep(l.session, func(a rdma.Access) (rdma.MemoryRegion, error) {
		return l.domain.RegisterPart(l.region, l.in, l.area(), a)
	}, rdma.LocalWrite|l.right())
	if err != nil {
		return err
	}
	queue := func(depth int) (rdma.CompletionQueue, error) {
		return keep(l.session, l.device.NewCompletionQueue, rdma.CompletionQueueConfig{Depth: depth})
	}
	depth := l.Depth
	if l.Test == latencyTest {
		depth = ahead
	}
	if l.sent, err = queue(depth + 1); err != nil {
		return err
	}
	if l.came, err = queue(l.receives() + 1); err != nil {
		return err
	}
	l.qp, err = keep(l.session, l.domain.NewQueuePair, rdma.QueuePairConfig{Transport: l.Transport, SendCQ: l.sent, ReceiveCQ: l.came,
		SendDepth: depth + 1, RecvDepth: l.receives() + 1, SendSGEs: 1, RecvSGEs: 1, InlineBytes: l.Inline})
	l.sends, l.recvs = make([]rdma.SendRequest, l.Depth), make([]rdma.ReceiveRequest, l.receives())
	l.sges, l.polled = make([]rdma.SGE, max(l.Depth, l.receives())), make([]rdma.WorkCompletion, 64)
	return err
}

// receives returns how many receives are posted. A peer in a bandwidth test may send twice its
// depth before it hears from us.
func (l *link) receives() int {
	if l.Test == verifyTest {
		return l.slots
	}
	return max(2*l.Depth, 16)
}

// right returns the access that the peer needs for the operation.
func (l *link) right() rdma.Access {
	switch l.op {
	case rdma.Write, rdma.WriteImmediate:
		return rdma.RemoteWrite
	case rdma.Read:
		return rdma.RemoteRead
	case rdma.FetchAdd, rdma.CompareSwap:
		return rdma.RemoteAtomic
	}
	return 0
}

// end returns what the peer must know.
func (l *link) end(local connect.Parameters, hello []byte) connect.End {
	e := connect.End{Queue: l.qp, Settings: l.settings, Parameters: local, Hello: hello, Elsewhere: l.Manager}
	if a := l.right(); a != 0 {
		e.Grants = []connect.Grant{{Name: "memory", RKey: l.granted.RKey(), Addr: l.granted.Addr(), Length: l.granted.Length(), Access: a}}
	}
	return e
}

// connected records a peer that is unified-rdma-test too.
func (l *link) connected(c *connect.Conn) (err error) {
	l.conn = c
	l.cleanup.Then(c.Close)
	offer := c.Remote()
	if l.right() != 0 {
		if l.theirs, err = offer.Grant("memory"); err != nil {
			return err
		}
		if need := uint64(l.slots) * l.stride; l.theirs.Length < need {
			return fmt.Errorf("the peer grants %d bytes, %d are needed", l.theirs.Length, need)
		}
	}
	return l.reach(offer.Parameters)
}

// reach records how to reach the peer.
func (l *link) reach(remote connect.Parameters) (err error) {
	l.remote = remote
	if l.Transport == rdma.UD {
		l.handle, err = keep(l.session, l.domain.NewAddressHandle, l.settings.AddressOf(remote))
	}
	return err
}

// sge returns the scatter/gather element of a slot.
func (l *link) sge(area uint64, slot int, n uint64) rdma.SGE {
	return rdma.SGE{Addr: l.memory.Addr() + area + uint64(slot)*l.stride, Length: uint32(n), LKey: l.memory.LKey()}
}

// bytes returns the message of a slot.
func (l *link) bytes(area uint64, slot int) []byte {
	return l.region.At(area+uint64(slot)*l.stride, l.Size)
}

// post posts receives into the slots from first on. After the last slot it continues with slot 0.
func (l *link) post(first, n int) error {
	for i := range n {
		l.receive(i, (first+i)%l.slots)
	}
	done, err := l.qp.PostReceive(l.recvs[:n], l.sges[:n])
	if done < n {
		return fmt.Errorf("post receive %d of %d: %w", done+1, n, err)
	}
	return nil
}

// receive prepares receive i of a batch, into a slot.
func (l *link) receive(i, slot int) {
	l.recvs[i] = rdma.ReceiveRequest{ID: uint64(slot), SGEs: 1}
	l.sges[i] = l.sge(l.in, slot, l.front()+l.Size)
}

// request returns a request for message n, from a slot.
func (l *link) request(n uint64, slot int) (rdma.SendRequest, rdma.SGE) {
	r := rdma.SendRequest{ID: n, Op: l.op, SGEs: 1}
	if l.Size <= uint64(l.Inline) && l.carries() {
		r.Flags = rdma.Inline
	}
	r.Immediate = [4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}
	r.RemoteAddr, r.RKey = l.theirs.Addr+uint64(slot)*l.stride, l.theirs.RKey
	if l.handle != nil {
		r.Handle, r.RemoteQPN, r.RemoteQKey = l.handle.ID(), l.remote.QPN, l.remote.QKey
	}
	return r, l.sge(l.out, slot, l.Size)
}

// carries reports whether requests carry our bytes, rather than read the peer's.
func (l *link) carries() bool {
	return l.op != rdma.Read && l.op != rdma.FetchAdd && l.op != rdma.CompareSwap
}

// send posts one request.
func (l *link) send(r rdma.SendRequest, s rdma.SGE) error {
	l.sends[0], l.sges[0] = r, s
	if n, err := l.qp.PostSend(l.sends[:1], l.sges[:1]); n < 1 {
		return fmt.Errorf("post %v number %d: %w", r.Op, r.ID, err)
	}
	return nil
}

// spin is how long one call polls for a completion.
const spin = 100 * time.Microsecond

// await returns at least one completion of a queue. It returns an error if a completion failed, or
// if none arrives within the user's replyTimeout.
func (l *link) await(q rdma.CompletionQueue) ([]rdma.WorkCompletion, error) {
	return l.awaitBetween(q, spin, func() {})
}

// awaitBetween is await with another poll time. It calls between after each poll without a completion.
func (l *link) awaitBetween(q rdma.CompletionQueue, look time.Duration, between func()) ([]rdma.WorkCompletion, error) {
	for tries := 0; ; tries++ {
		n, err := q.Spin(l.polled, look)
		if err != nil {
			return nil, err
		}
		if n > 0 {
			return l.answered(n)
		}
		between()
		if err := l.idle(tries); err != nil {
			return nil, err
		}
	}
}

// idle is called after tries polls without a completion.
func (l *link) idle(tries int) error {
	if tries%32 != 31 {
		return nil
	}
	runtime.Gosched()
	return l.stillWaiting()
}

// answered returns the polled completions.
func (l *link) answered(n int) ([]rdma.WorkCompletion, error) {
	l.waiting = time.Time{}
	if err := l.yield(); err != nil {
		return nil, err
	}
	return l.polled[:n], l.good(l.polled[:n])
}

// awhile is how long the thread keeps its P between two yields.
const awhile = 4 * time.Millisecond

// yield gives the thread to the Go scheduler at intervals. If a thread does not yield for 10 ms, the
// scheduler takes the P at each call into C (runtime.retake), and another thread wakes every 20 µs to do
// so. A yield costs two thread switches, so yield does it no more often than necessary. It returns an error
// when the test must end, because nothing else would notice that while answers keep arriving.
func (l *link) yield() error {
	if l.answers++; l.answers%4 != 0 || time.Since(l.gave) <= awhile {
		return nil
	}
	runtime.Gosched()
	l.gave = time.Now()
	return context.Cause(l.ctx)
}

// stillWaiting returns an error once the wait exceeds the timeout.
func (l *link) stillWaiting() error {
	switch now := time.Now(); {
	case l.ctx.Err() != nil:
		return context.Cause(l.ctx)
	case l.over() != nil:
		return l.over()
	case l.waiting.IsZero():
		l.waiting = now
	case now.Sub(l.waiting) > l.options.replyTimeout:
		return fmt.Errorf("nothing came for %v: check that the peer is alive and that packets pass (UDP port 4791), or raise -timeout", l.options.replyTimeout)
	}
	return nil
}

// good returns the error of the first completion. Later ones are its consequence.
func (l *link) good(cs []rdma.WorkCompletion) error {
	for i := range cs {
		if err := cs[i].Err(); err != nil {
			return errors.Join(l.over(), err)
		}
	}
	return nil
}

// tell and hear exchange small messages over TCP, for what the queue pair cannot carry.
func (l *link) tell(text string) error { return l.conn.Send([]byte(text)) }

func (l *link) hear(want string) error {
	for {
		if err := l.conn.SetDeadline(time.Now().Add(l.options.replyTimeout)); err != nil {
			return err
		}
		switch b, err := l.conn.Receive(); {
		case err != nil:
			return err
		case string(b) == want:
			return nil
		case string(b) != working:
			return fmt.Errorf("the peer says %q, not %q", b, want)
		}
	}
}

// The client sends working at intervals while its server sees nothing of the test.
const (
	working      = "working"
	workingEvery = time.Second
)

// stillWorking sends working until stop is called, if the server needs it.
func (l *link) stillWorking() (stop func()) {
	if !l.unnoticed() {
		return func() {}
	}
	end := make(chan struct{})
	var saying sync.WaitGroup
	saying.Go(func() {
		tick := time.NewTicker(workingEvery)
		defer tick.Stop()
		for err := error(nil); err == nil; {
			select {
			case <-end:
				return
			case <-tick.C:
				err = l.tell(working)
			}
		}
	})
	return func() { close(end); saying.Wait() }
}
