package transport

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/rdma"
)

// TestPostRefused: PostSend refuses an invalid request, and accepts the requests before it.
func TestPostRefused(t *testing.T) {
	w := newWorld(t, 1, Config{})
	a, _ := w.pair(options{inline: 32})
	ud, _ := w.pair(options{transport: rdma.UD})
	e := w.ends[0]
	for _, c := range []struct {
		name string
		q    *QueuePair
		r    rdma.SendRequest
		sges []rdma.SGE
		want error
	}{
		{"an operation", ud, rdma.SendRequest{Op: rdma.Write}, nil, rdma.ErrUnsupported},
		{"no operation", a, rdma.SendRequest{Op: 99}, nil, rdma.ErrUnsupported},
		{"a bind", a, rdma.SendRequest{Op: opBind}, nil, rdma.ErrUnsupported},
		{"a short list", a, rdma.SendRequest{SGEs: 2}, []rdma.SGE{e.sge(0, 1)}, unix.EINVAL},
		{"a wild list", a, rdma.SendRequest{SGEs: ^uint32(0)}, []rdma.SGE{e.sge(0, 1)}, unix.EINVAL},
		{"elements", a, rdma.SendRequest{SGEs: 5}, make([]rdma.SGE, 5), unix.EINVAL},
		{"no handle", ud, rdma.SendRequest{Op: rdma.Send, Handle: 1}, nil, unix.EINVAL},
		{"a wild handle", ud, rdma.SendRequest{Op: rdma.Send, Handle: ^uint32(0)}, nil, unix.EINVAL},
		{"an odd atomic", a, rdma.SendRequest{Op: rdma.FetchAdd, RemoteAddr: 4, SGEs: 1}, []rdma.SGE{e.sge(0, 8)}, unix.EINVAL},
		{"a short atomic", a, rdma.SendRequest{Op: rdma.FetchAdd, SGEs: 1}, []rdma.SGE{e.sge(0, 4)}, unix.EINVAL},
		{"inline", a, rdma.SendRequest{Op: rdma.Send, Flags: rdma.Inline, SGEs: 1}, []rdma.SGE{e.sge(0, 33)}, unix.EINVAL},
		{"inline from nowhere", a, rdma.SendRequest{Op: rdma.Send, Flags: rdma.Inline, SGEs: 1}, []rdma.SGE{{Addr: ^uint64(0), Length: 2}}, unix.EFAULT},
		{"an inline READ", a, rdma.SendRequest{Op: rdma.Read, Flags: rdma.Inline, SGEs: 1}, []rdma.SGE{e.sge(0, 1)}, unix.EINVAL},
	} {
		good := rdma.SendRequest{Op: rdma.Send}
		if c.q == ud {
			good.Handle = w.handle()
		}
		if n, err := c.q.PostSend([]rdma.SendRequest{good, c.r, good}, c.sges); n != 1 || !errors.Is(err, c.want) {
			t.Errorf("%s: %d were taken, %v; want %v", c.name, n, err, c.want)
		}
		e.engine().CloseAddressHandle(good.Handle)
	}
	fresh, err := e.NewQueuePair(QueuePairConfig{QueuePairConfig: a.config.QueuePairConfig, SendCQ: e.cq, ReceiveCQ: e.cq})
	must(t, err)
	if _, err := fresh.PostSend([]rdma.SendRequest{{}}, nil); !errors.Is(err, rdma.ErrState) {
		t.Errorf("in RESET: %v", err)
	}
	if _, err := fresh.PostReceive([]rdma.ReceiveRequest{{}}, nil); !errors.Is(err, rdma.ErrState) {
		t.Errorf("in RESET: %v", err)
	}
}

func (e *end) engine() *Engine { return e.Engine }

// TestQueuesFull: a full queue refuses requests, and accepts new ones after the old ones complete.
func TestQueuesFull(t *testing.T) {
	w := newWorld(t, 1, Config{})
	a, b := w.pair(options{depth: 5})
	requests, receives := make([]rdma.SendRequest, 20), make([]rdma.ReceiveRequest, 20)
	for i := range requests {
		requests[i].Op = rdma.Send
	}
	for round := range 3 {
		if n, err := b.PostReceive(receives, nil); n != 8 || !errors.Is(err, unix.ENOMEM) {
			t.Fatalf("round %d: %d receives were taken: %v", round, n, err)
		}
		if n, err := a.PostSend(requests, nil); n != 8 || !errors.Is(err, unix.ENOMEM) {
			t.Fatalf("round %d: %d sends were taken: %v", round, n, err)
		}
		w.run(time.Millisecond)
	}
	if n, m := len(w.ends[0].done), len(w.ends[1].done); n != 24 || m != 24 {
		t.Errorf("%d and %d completed", n, m)
	}
	if _, err := b.PostReceive([]rdma.ReceiveRequest{{SGEs: 5}}, make([]rdma.SGE, 5)); !errors.Is(err, unix.EINVAL) {
		t.Errorf("five elements: %v", err)
	}
	if _, err := b.PostReceive([]rdma.ReceiveRequest{{SGEs: 1}}, nil); !errors.Is(err, unix.EINVAL) {
		t.Errorf("a short list: %v", err)
	}
}

// TestOverrun: if a completion queue is too small, Poll returns an error after the completions that
// fit, the program gets events, and the queue pair fails.
func TestOverrun(t *testing.T) {
	w := newWorld(t, 1, Config{})
	e := w.ends[0]
	var err error
	e.cq, err = NewCompletionQueue(4)
	must(t, err)
	a, _ := w.pair(options{})
	for i := range 6 {
		send(t, a, rdma.SendRequest{ID: uint64(i), Op: rdma.Write})
	}
	for range 10 {
		w.receive()
		e.transmit()
		w.ends[1].transmit()
		w.now += 2000
	}
	if a.State() != rdma.Error || e.Count(CompletionsLost) == 0 {
		t.Errorf("in %v, %d lost", a.State(), e.Count(CompletionsLost))
	}
	var c [8]rdma.WorkCompletion
	if n, err := e.cq.Poll(c[:]); n != 4 || err != nil {
		t.Errorf("%d completions, %v; want the 4 that fit", n, err)
	}
	if _, err := e.cq.Poll(c[:]); !errors.Is(err, errOverrun) {
		t.Errorf("then %v", err)
	}
	e.poll()
	if fmt.Sprint(e.got) != fmt.Sprint([]rdma.Event{{Kind: rdma.CompletionQueueError}, {Kind: rdma.QueuePairFatal, QPN: a.Number()}}) {
		t.Errorf("events %v", e.got)
	}
}

// TestOverrunUnacknowledged: the receiver does not acknowledge a message whose completion was lost.
func TestOverrunUnacknowledged(t *testing.T) {
	w := newWorld(t, 1, Config{})
	from, to := w.ends[0], w.ends[1]
	var err error
	to.cq, err = NewCompletionQueue(2)
	must(t, err)
	a, b := w.pair(options{})
	for i := range 3 {
		receiveInto(t, b, uint64(i))
		send(t, a, rdma.SendRequest{ID: uint64(i), Op: rdma.Send})
	}
	w.batch = 1
	for range 10 {
		from.transmit()
		to.transmit()
		w.now += 2000
		w.receive()
		from.poll()
	}
	if len(from.done) > 2 || b.State() != rdma.Error || to.Count(CompletionsLost) == 0 {
		t.Errorf("%d of 3 were acknowledged, 2 delivered; in %v", len(from.done), b.State())
	}
}

// TestArm: each Arm causes one wake-up. A queue armed for solicited completions wakes the program
// only for those and for errors.
func TestArm(t *testing.T) {
	w := newWorld(t, 1, Config{})
	a, b := w.pair(options{})
	to := w.ends[1]
	wakes := func(f rdma.Flags) int {
		receiveInto(t, b, 1)
		send(t, a, rdma.SendRequest{Op: rdma.Send, Flags: f})
		w.run(time.Millisecond)
		return to.Wakes(make([]*CompletionQueue, 4))
	}
	for _, c := range []struct {
		arm, solicited bool
		flags          rdma.Flags
		want           int
	}{{false, false, 0, 0}, {true, false, 0, 1}, {false, false, 0, 0}, {true, true, 0, 0}, {false, true, rdma.Solicited, 1}, {false, true, rdma.Solicited, 0}} {
		if c.arm {
			to.cq.Arm(c.solicited)
		}
		if n := wakes(c.flags); n != c.want {
			t.Errorf("%+v: %d wakes", c, n)
		}
	}
	to.cq.Arm(true)
	must(t, b.Modify(rdma.Attributes{State: rdma.Error}, rdma.MaskState, 0))
	receiveInto(t, b, 1)
	w.run(time.Millisecond)
	if n := to.Wakes(make([]*CompletionQueue, 4)); n != 1 {
		t.Errorf("a failure gave %d wakes", n)
	}
}

// TestSharedReceives: two queue pairs take receives from one queue, and the program gets an event
// when few are left.
func TestSharedReceives(t *testing.T) {
	w := newWorld(t, 1, Config{})
	shared, err := NewSharedReceiveQueue(rdma.SharedReceiveQueueConfig{Depth: 8, SGEs: 1})
	must(t, err)
	a1, b1 := w.pair(options{shared: shared})
	a2, b2 := w.pair(options{shared: shared})
	from, to := w.ends[0], w.ends[1]
	for i := range 5 {
		_, err := shared.PostReceive([]rdma.ReceiveRequest{{ID: uint64(i), SGEs: 1}}, []rdma.SGE{to.sge(i*4096, 4096)})
		must(t, err)
	}
	shared.Limit(3)
	for range 2 {
		send(t, a1, rdma.SendRequest{Op: rdma.Send}, from.sge(0, 3000))
		send(t, a2, rdma.SendRequest{Op: rdma.Send}, from.sge(0, 3000))
	}
	w.run(time.Millisecond)
	by := map[uint32]int{}
	for _, c := range to.done {
		by[c.QPN]++
	}
	if by[b1.Number()] != 2 || by[b2.Number()] != 2 {
		t.Errorf("messages by queue pair: %v", by)
	}
	must(t, b1.Modify(rdma.Attributes{State: rdma.Error}, rdma.MaskState, 0))
	w.run(time.Millisecond)
	if fmt.Sprint(to.got) != fmt.Sprint([]rdma.Event{{Kind: rdma.SharedQueueLimit}, {Kind: rdma.LastReceive, QPN: b1.Number()}}) {
		t.Errorf("events %v", to.got)
	}
	if _, err := b2.PostReceive([]rdma.ReceiveRequest{{}}, nil); err == nil {
		t.Error("a queue pair with a shared queue took a receive")
	}
}

// TestDrained: in SendDrained, requests posted before complete and the program gets an event.
// Requests posted later wait for RTS.
func TestDrained(t *testing.T) {
	w := newWorld(t, 1, Config{Window: 2})
	a, b := w.pair(options{})
	from, to := w.ends[0], w.ends[1]
	for i := range 3 {
		send(t, a, rdma.SendRequest{ID: uint64(i), Op: rdma.Write, RemoteAddr: to.base, RKey: to.key}, from.sge(0, 5000))
	}
	must(t, a.Modify(rdma.Attributes{State: rdma.SendDrained}, rdma.MaskState, 0))
	send(t, a, rdma.SendRequest{ID: 3, Op: rdma.Write})
	receiveInto(t, a, 9)
	send(t, b, rdma.SendRequest{ID: 1, Op: rdma.Send})
	w.run(time.Millisecond)
	from.want(t, "9 receive 0", "0 WRITE", "1 WRITE", "2 WRITE")
	if len(from.got) != 1 || from.got[0] != (rdma.Event{Kind: rdma.SendQueueDrained, QPN: a.Number()}) {
		t.Errorf("events %v", from.got)
	}
	must(t, a.Modify(rdma.Attributes{State: rdma.ReadyToSend}, rdma.MaskState, 0))
	w.run(time.Millisecond)
	from.want(t, "3 WRITE")
}

// TestModify: Query returns the attributes that were set, and Modify refuses invalid ones.
func TestModify(t *testing.T) {
	w := newWorld(t, 1, Config{MTU: rdma.MTU1024})
	a, b := w.pair(options{psn: 77})
	got := a.Query()
	if got.State != rdma.ReadyToSend || got.SendPSN != 77 || got.ReceivePSN != 77 || got.RemoteQPN != b.Number() || got.Timeout != 8 || got.Access != rdma.Remote {
		t.Errorf("attributes %+v", got)
	}
	for _, c := range []struct {
		a     rdma.Attributes
		given rdma.Mask
	}{{rdma.Attributes{State: rdma.Init}, rdma.MaskState}, {rdma.Attributes{State: rdma.ReadyToSend, CurrentState: rdma.Init}, rdma.MaskState | rdma.MaskCurrentState},
		{rdma.Attributes{MinRNRTimer: 32}, rdma.MaskMinRNRTimer}, {rdma.Attributes{Retries: 1}, rdma.MaskRetries}} {
		if err := a.Modify(c.a, c.given, 0); err == nil {
			t.Errorf("%+v was taken", c.a)
		}
	}
	must(t, a.Modify(rdma.Attributes{MinRNRTimer: 31}, rdma.MaskMinRNRTimer, 0))
	must(t, a.Modify(rdma.Attributes{State: rdma.Reset}, rdma.MaskState, 0))
	must(t, a.Modify(rdma.Attributes{State: rdma.Init, Port: 1}, rdma.MaskState|rdma.MaskPKeyIndex|rdma.MaskPort|rdma.MaskAccess, 0))
	all := rdma.Attributes{State: rdma.ReadyToReceive, PathMTU: rdma.MTU2048}
	given := rdma.MaskState | rdma.MaskAddress | rdma.MaskPathMTU | rdma.MaskRemoteQPN | rdma.MaskReceivePSN | rdma.MaskMaxRemoteReads | rdma.MaskMinRNRTimer
	if err := a.Modify(all, given, 0); err == nil {
		t.Error("a path MTU beyond the port's was taken")
	}
	if a.State() != rdma.Init {
		t.Errorf("in %v", a.State())
	}
}

// TestNumbers: the number of a closed queue pair is not reused at once.
func TestNumbers(t *testing.T) {
	w := newWorld(t, 1, Config{QueuePairs: 3, Shard: 2, ShardBits: 2})
	e := w.ends[0]
	c := QueuePairConfig{SendCQ: e.cq, ReceiveCQ: e.cq}
	c.Transport = rdma.RC
	seen := map[uint32]bool{}
	for range 100 {
		q, err := e.NewQueuePair(c)
		must(t, err)
		if n := q.Number(); seen[n] || n%4 != 2 || n < 2 || e.find(n) != q {
			t.Fatalf("number %d", n)
		}
		seen[q.Number()] = true
		q.Close()
		if e.find(q.Number()) != nil {
			t.Fatal("it is there after Close")
		}
	}
	var all []*QueuePair
	for range 3 {
		q, err := e.NewQueuePair(c)
		must(t, err)
		all = append(all, q)
	}
	if _, err := e.NewQueuePair(c); err == nil {
		t.Error("four of three")
	}
	all[1].Close()
	if _, err := e.NewQueuePair(c); err != nil {
		t.Error(err)
	}
}

// TestNumbersOfAnotherGeneration: the first numbers of a process differ from those of a process
// with another generation.
func TestNumbersOfAnotherGeneration(t *testing.T) {
	seen := map[uint32]bool{}
	for _, generation := range []uint32{0, 1 << 20, 1<<32 - 2} {
		w := newWorld(t, 1, Config{QueuePairs: 3, Generation: generation})
		e := w.ends[0]
		c := QueuePairConfig{SendCQ: e.cq, ReceiveCQ: e.cq}
		c.Transport = rdma.RC
		for range 3 {
			q, err := e.NewQueuePair(c)
			must(t, err)
			if n := q.Number(); seen[n] || n < 2 || n >= multicast || e.find(n) != q {
				t.Errorf("number %d of generation %d", n, generation)
			}
			seen[q.Number()] = true
		}
	}
}

// TestSpecialNumber: an engine has at most one queue pair with number 1, that of connection
// managers.
func TestSpecialNumber(t *testing.T) {
	w := newWorld(t, 1, Config{})
	e := w.ends[0]
	c := QueuePairConfig{SendCQ: e.cq, ReceiveCQ: e.cq, Number: 1}
	c.Transport = rdma.UD
	q, err := e.NewQueuePair(c)
	must(t, err)
	if e.find(1) != q || q.Number() != 1 {
		t.Error("number 1 is not found")
	}
	if _, err := e.NewQueuePair(c); err == nil {
		t.Error("number 1 twice")
	}
	q.Close()
	if _, err := e.NewQueuePair(c); err != nil {
		t.Error(err)
	}
}

// TestNames: each counter and drop reason has a unique name.
func TestNames(t *testing.T) {
	seen := map[string]bool{}
	for c := Counter(0); c < Counters; c++ {
		seen[c.String()] = true
	}
	for d := Drop(0); d < Drops; d++ {
		seen[d.String()] = true
	}
	if len(seen) != int(Counters)+int(Drops) || seen[""] {
		t.Errorf("%d names of %d", len(seen), Counters)
	}
}
