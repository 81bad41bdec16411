//go:build lab && verbs && cgo

package verbs

import (
	"errors"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma"
)

// talkers makes two ends with separate send completion queues, and posts receives.
func talkers(b *bench) (x, y *end) {
	b.t.Helper()
	c := config(rdma.RC)
	var ends [2]*end
	for i := range ends {
		c.SendCQ = testenv.Opened(b.t, func() (rdma.CompletionQueue, error) {
			return b.dev.NewCompletionQueue(rdma.CompletionQueueConfig{Depth: 64})
		})
		ends[i] = b.end(c)
	}
	x, y = ends[0], ends[1]
	x.connect(y.qp.QPN())
	y.connect(x.qp.QPN())
	for range 16 {
		x.receive(1, b.sge(destination, 64))
		y.receive(1, b.sge(destination, 64))
	}
	return x, y
}

// exchange returns an Exchange of several rounds of one operation. begins says whether the end
// posts first.
func (e *end) exchange(op rdma.Op, rounds int, begins bool) *rdma.Exchange {
	x := &rdma.Exchange{Request: rdma.SendRequest{ID: 4, Op: op, SGEs: 1, Flags: rdma.Signaled, RKey: e.b.memory.RKey(), RemoteAddr: e.b.memory.Addr() + destination},
		Element: e.b.sge(source, 8), Sent: e.qp.Config().SendCQ, Ahead: 4, Rounds: rounds, Begun: begins, Posted: make([]uint64, rounds)}
	if op == rdma.Send {
		x.Came, x.Again, x.Into = e.cq, make([]rdma.ReceiveRequest, 8), make([]rdma.SGE, 8)
		for i := range x.Again {
			x.Again[i], x.Into[i] = rdma.ReceiveRequest{ID: 1, SGEs: 1}, e.b.sge(destination, 64)
		}
	}
	return x
}

// finish calls Exchange until all rounds are done.
func (e *end) finish(x *rdma.Exchange) error {
	for end := time.Now().Add(20 * time.Second); x.Rounds > 0; {
		if err := e.qp.(rdma.Exchanger).Exchange(x, 5*time.Millisecond); err != nil {
			return err
		}
		if time.Now().After(end) {
			return errors.New("20 s were not enough")
		}
	}
	return nil
}

// both runs the exchanges of two ends at once, and checks the times that they recorded.
func both(t *testing.T, x, y *end, of, answer *rdma.Exchange) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- y.finish(answer) }()
	testenv.Must(t, errors.Join(x.finish(of), <-done))
	for _, posted := range [][]uint64{of.Posted, answer.Posted} {
		if posted[0] == 0 || !slices.IsSorted(posted) {
			t.Errorf("posted at %d", posted)
		}
	}
}

// exchanges: Exchange works with more messages than receives, with message numbers that wrap, and
// with READs, which the peer does not answer by a message.
func exchanges(b *bench) {
	const rounds = 300
	x, y := talkers(b)
	ping, pong := x.exchange(rdma.Send, rounds, true), y.exchange(rdma.Send, rounds, false)
	both(b.t, x, y, ping, pong)
	if ping.Taken != (rounds-1)%8 || pong.Taken != rounds%8 || ping.Open > ping.Ahead {
		b.t.Errorf("%d and %d messages taken, %d open", ping.Taken, pong.Taken, ping.Open)
	}
	x.want(1, rdma.Success) // the last answer
	x.quiet()
	y.quiet()

	x, y = talkers(b)
	ping, pong = x.exchange(rdma.Write, rounds, true), y.exchange(rdma.Write, rounds, false)
	const far = 4096
	ping.Word, ping.Last = x.word(destination), x.last(source)
	pong.Word, pong.Last, pong.Number = y.word(destination+far), y.last(source+far), 1
	ping.Request.RemoteAddr += far
	pong.Element = b.sge(source+far, 8)
	ping.Shift, pong.Shift = 24, 24
	both(b.t, x, y, ping, pong)
	if got := *pong.Word >> 24; byte(got) != byte(rounds%256) {
		b.t.Errorf("the last byte is %d", got)
	}

	read := x.exchange(rdma.Read, rounds, true)
	if err := x.finish(read); err != nil || read.Open != 1 || !slices.IsSorted(read.Posted) {
		b.t.Errorf("READ: %v, %d open", err, read.Open)
	}
}

// word returns the last four of eight bytes, and last the last byte. Both clear all eight.
func (e *end) word(addr uint64) *uint32 {
	return (*uint32)(unsafe.Pointer(&e.zero(addr)[4]))
}

func (e *end) last(addr uint64) *byte { return &e.zero(addr)[7] }

func (e *end) zero(addr uint64) []byte {
	b := e.b.region.At(addr, 8)
	clear(b)
	return b
}

// failedExchanges: Exchange returns no error if no message arrives in time. It fails if a
// completion does, or if the request is invalid.
func failedExchanges(b *bench) {
	x, y := talkers(b)
	pong := y.exchange(rdma.Send, 2, false)
	of := y.qp.(rdma.Exchanger)
	begin := time.Now()
	if err := of.Exchange(pong, 20*time.Millisecond); err != nil || pong.Rounds != 2 || pong.Open != 0 || time.Since(begin) < 20*time.Millisecond {
		b.t.Errorf("nothing came: %v, %d rounds left, after %v", err, pong.Rounds, time.Since(begin))
	}
	x.send(rdma.SendRequest{ID: 2, Op: rdma.Send, Flags: rdma.Signaled}, b.sge(source, 8))
	if err := of.Exchange(pong, 200*time.Millisecond); err != nil || pong.Rounds != 1 || pong.Posted[0] == 0 || pong.Posted[1] != 0 {
		b.t.Errorf("one message: %v, %d rounds left, posted at %d", err, pong.Rounds, pong.Posted)
	}
	for _, c := range []struct {
		change func(*rdma.Exchange)
		why    string
	}{
		{func(e *rdma.Exchange) { e.Came = e.Sent }, "two completion queues"},
		{func(e *rdma.Exchange) { e.Sent = nil }, "two completion queues"},
		{func(e *rdma.Exchange) { e.Ahead = 0 }, "do not fit"},
		{func(e *rdma.Exchange) { e.Posted = e.Posted[:1] }, "do not fit"},
		{func(e *rdma.Exchange) { e.Into = nil }, "do not fit"},
		{func(e *rdma.Exchange) { e.Begun, e.Request.SGEs = true, 2 }, "more elements than are left"},
	} {
		bad := y.exchange(rdma.Send, 2, false)
		c.change(bad)
		refused(b.t, of.Exchange(bad, time.Millisecond), nil, c.why)
	}
	y.modify(rdma.Attributes{State: rdma.Error}, 0)
	if err := y.finish(y.exchange(rdma.Send, 2, false)); !errors.Is(err, rdma.WorkFlushed) {
		b.t.Errorf("a failure: %v", err)
	}
}
