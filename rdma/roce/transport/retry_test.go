package transport

import (
	"fmt"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/roce/wire"
)

// loseOnce makes the link lose the nth packet of an opcode.
func (w *world) loseOnce(o wire.Opcode, nth int) {
	seen := 0
	w.link.each = func(_ int, h *wire.Header) bool {
		if h.Opcode == o {
			seen++
			return seen == nth
		}
		return false
	}
}

// loseAll makes the link lose all packets of a kind.
func (w *world) loseAll(k wire.Kind) {
	w.link.each = func(_ int, h *wire.Header) bool { return h.Opcode.Kind() == k }
}

// TestLoss: the requester recovers from the loss of any one packet with one retry, and counts how
// it noticed the loss.
func TestLoss(t *testing.T) {
	for _, c := range []struct {
		lost    wire.Opcode
		nth     int
		op      rdma.Op
		noticed Counter // how the requester notices
		behind  bool    // a WRITE follows the request
	}{
		{wire.RCSendFirst, 1, rdma.Send, SequenceNAKs, false},
		{wire.RCSendMiddle, 3, rdma.Send, SequenceNAKs, false},
		{wire.RCSendLast, 1, rdma.Send, Timeouts, false},
		{wire.RCSendLast, 1, rdma.Send, SequenceNAKs, true},
		{wire.RCWriteFirst, 1, rdma.Write, SequenceNAKs, false},
		{wire.RCWriteMiddle, 3, rdma.Write, SequenceNAKs, false},
		{wire.RCAcknowledge, 1, rdma.Send, Timeouts, false},
		{wire.RCReadRequest, 1, rdma.Read, Timeouts, false},
		{wire.RCReadRequest, 1, rdma.Read, SequenceNAKs, true},
		{wire.RCReadResponseFirst, 1, rdma.Read, ImpliedNAKs, false},
		{wire.RCReadResponseMiddle, 4, rdma.Read, ImpliedNAKs, false},
		{wire.RCReadResponseLast, 1, rdma.Read, Timeouts, false},
		{wire.RCReadResponseLast, 1, rdma.Read, ImpliedNAKs, true},
		{wire.RCFetchAdd, 1, rdma.FetchAdd, Timeouts, false},
		{wire.RCAtomicAcknowledge, 1, rdma.FetchAdd, Timeouts, false},
		{wire.RCAtomicAcknowledge, 1, rdma.FetchAdd, ImpliedNAKs, true},
	} {
		for _, fresh := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v %d %v %v %v", c.lost, c.nth, c.noticed, c.behind, fresh), func(t *testing.T) {
				w := newWorld(t, 1, Config{})
				a, b := w.pair(options{psn: 0xfffffe, fresh: fresh})
				w.loseOnce(c.lost, c.nth)
				w.tenPackets(c.op, a, b, c.behind)
				from := w.ends[0]
				if n := from.Count(c.noticed); n != 1 || from.Count(Retries) != 1 {
					t.Errorf("%v is %d, and there were %d retries; want 1 and 1", c.noticed, n, from.Count(Retries))
				}
			})
		}
	}
}

// tenPackets runs a message of ten packets, or an atomic, and checks the result.
func (w *world) tenPackets(o rdma.Op, a, b *QueuePair, behind bool) {
	t, from, to := w.t, w.ends[0], w.ends[1]
	const n = 10*1024 - 3
	there, here := to.fill(0, n, 1), from.fill(0, n, 2)
	receiveInto(t, b, 9, to.sge(0, n))
	length := n
	if o == rdma.FetchAdd {
		length = 8
	}
	send(t, a, rdma.SendRequest{ID: 1, Op: o, RemoteAddr: to.base, RKey: to.key, Compare: 0x100}, from.sge(0, length))
	if behind {
		send(t, a, rdma.SendRequest{ID: 2, Op: rdma.Write})
	}
	w.run(time.Second)
	wanted := []string{map[rdma.Op]string{rdma.Send: "1 SEND", rdma.Write: "1 WRITE", rdma.Read: "1 READ", rdma.FetchAdd: "1 fetch-and-add"}[o]}
	if behind {
		wanted = append(wanted, "2 WRITE")
	}
	from.want(t, wanted...)
	switch o {
	case rdma.Read:
		same(t, "READ", from.memory(0, n), there)
	case rdma.FetchAdd:
		same(t, "what was there", from.memory(0, 8), there[:8])
		there[1]++
		same(t, "the word", to.memory(0, n), there)
	default:
		same(t, "message", to.memory(0, n), here)
	}
}

// TestRetriesExceeded: a request without any ACK fails after the configured number of retries,
// whose timeouts double up to four times the first.
func TestRetriesExceeded(t *testing.T) {
	for _, retries := range []uint8{0, 1, 3, 7} {
		w := newWorld(t, 1, Config{})
		a, _ := w.pair(options{tweak: func(a *rdma.Attributes) { a.Retries = retries }})
		w.loseAll(wire.Acknowledge)
		send(t, a, rdma.SendRequest{ID: 1, Op: rdma.Write})
		send(t, a, rdma.SendRequest{ID: 2, Op: rdma.Write})
		start := w.now
		w.run(time.Second)
		w.ends[0].want(t, "1 IBV_WC_RETRY_EXC_ERR", "2 IBV_WC_WR_FLUSH_ERR")
		if n := w.ends[0].Count(Timeouts); n != uint64(retries)+1 {
			t.Errorf("%d retries: %d timeouts", retries, n)
		}
		took, want := time.Duration(w.now-start), time.Duration(0)
		for n := range int(retries) + 1 {
			want += wire.AckTimeout(8) * time.Duration(min(1<<n, 4))
		}
		if took < want || took > want*5/4 {
			t.Errorf("%d retries took %v, want %v", retries, took, want)
		}
	}
}

// TestWaitsGrow: a requester that hears nothing sends a packet again after T, 2T, 4T and then every
// 4T. After an ACK it starts with T again.
func TestWaitsGrow(t *testing.T) {
	w := newWorld(t, 1, Config{})
	a, _ := w.pair(options{})
	var waits []time.Duration
	deaf, last := true, w.now
	w.link.each = func(from int, h *wire.Header) bool {
		if from == 0 {
			waits = append(waits, time.Duration(w.now-last).Round(wire.AckTimeout(8)/4)/wire.AckTimeout(8))
			last = w.now
		}
		return deaf
	}
	send(t, a, rdma.SendRequest{ID: 1, Op: rdma.Write})
	w.run(16 * wire.AckTimeout(8)) // sent at 0, 1, 3, 7, 11 and 15 timeouts
	deaf = false
	w.run(5 * wire.AckTimeout(8)) // sent at 19 timeouts, and this one arrives
	deaf, last = true, w.now
	send(t, a, rdma.SendRequest{ID: 2, Op: rdma.Write})
	w.run(5 * wire.AckTimeout(8))
	if want := "[0 1 2 4 4 4 4 0 1 2]"; fmt.Sprint(ints(waits)) != want {
		t.Errorf("packets came after %v timeouts, want %s", ints(waits), want)
	}
	w.ends[0].want(t, "1 WRITE")
}

func ints(all []time.Duration) (n []int) {
	for _, d := range all {
		n = append(n, int(d))
	}
	return n
}

// TestRetriesReload: each ACK restores the retries, so the loss of every other ACK does not end the
// connection.
func TestRetriesReload(t *testing.T) {
	w := newWorld(t, 1, Config{})
	a, _ := w.pair(options{depth: 32, tweak: func(a *rdma.Attributes) { a.Retries = 1 }})
	n := 0
	w.link.each = func(_ int, h *wire.Header) bool {
		if h.Opcode == wire.RCAcknowledge {
			n++
			return n%2 == 1
		}
		return false
	}
	for i := range 10 {
		send(t, a, rdma.SendRequest{ID: uint64(i), Op: rdma.Write})
		w.run(10 * time.Millisecond)
	}
	if len(w.ends[0].done) != 10 || a.State() != rdma.ReadyToSend {
		t.Errorf("%d of 10 completed, in %v", len(w.ends[0].done), a.State())
	}
}

// TestForEver: a queue pair without a timeout waits for an ACK without a limit.
func TestForEver(t *testing.T) {
	w := newWorld(t, 1, Config{})
	a, _ := w.pair(options{tweak: func(a *rdma.Attributes) { a.Timeout = 0 }})
	w.loseAll(wire.Acknowledge)
	send(t, a, rdma.SendRequest{ID: 1, Op: rdma.Write})
	w.run(time.Hour)
	if _, ok := w.ends[0].NextDeadline(); ok || a.State() != rdma.ReadyToSend {
		t.Errorf("there is a deadline, or the queue pair is in %v", a.State())
	}
}

// TestReceiverNotReady: a SEND succeeds if the peer posts a receive in time, and fails when its RNR
// retries are exceeded.
func TestReceiverNotReady(t *testing.T) {
	for _, c := range []struct {
		retries uint8
		posted  bool
		length  int
		status  string
	}{{7, true, 3000, "1 SEND"}, {0, false, 10, "1 IBV_WC_RNR_RETRY_EXC_ERR"}, {2, false, 3000, "1 IBV_WC_RNR_RETRY_EXC_ERR"}, {6, true, 10, "1 SEND"}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			w := newWorld(t, 1, Config{})
			a, b := w.pair(options{tweak: func(a *rdma.Attributes) { a.RNRRetries, a.MinRNRTimer = c.retries, 10 }})
			from, to := w.ends[0], w.ends[1]
			want := from.fill(0, c.length, 1)
			send(t, a, rdma.SendRequest{ID: 1, Op: rdma.Send}, from.sge(0, c.length))
			w.run(time.Millisecond)
			if c.posted {
				receiveInto(t, b, 2, to.sge(0, c.length))
			}
			w.run(10 * time.Millisecond)
			from.want(t, c.status)
			if n := from.Count(RNRReceived); n != to.Count(RNRSent) || !c.posted && n != uint64(c.retries)+1 || n > 5 {
				t.Errorf("%d RNR NAKs were sent and %d came", to.Count(RNRSent), n)
			}
			if from.Count(SequenceNAKs)+from.Count(Timeouts) != 0 {
				t.Errorf("%d sequence NAKs, %d timeouts", from.Count(SequenceNAKs), from.Count(Timeouts))
			}
			if c.posted {
				to.want(t, fmt.Sprint("2 receive ", c.length))
				same(t, "message", to.memory(0, c.length), want)
			}
		})
	}
}

// TestWriteImmediateNotReady: without a receive, the responder refuses only the last packet of a
// WRITE with immediate data.
func TestWriteImmediateNotReady(t *testing.T) {
	w := newWorld(t, 1, Config{})
	a, b := w.pair(options{tweak: func(a *rdma.Attributes) { a.MinRNRTimer = 10 }})
	from, to := w.ends[0], w.ends[1]
	want := from.fill(0, 5000, 1)
	send(t, a, rdma.SendRequest{ID: 1, Op: rdma.WriteImmediate, RemoteAddr: to.base, RKey: to.key}, from.sge(0, 5000))
	w.run(100 * time.Microsecond)
	receiveInto(t, b, 2)
	w.run(time.Second)
	from.want(t, "1 WRITE")
	to.want(t, "2 receive of WRITE with immediate 5000 imm 0")
	same(t, "WRITE", to.memory(0, 5000), want)
	if n := to.Count(CopiedBytes); n != 5000 {
		t.Errorf("%d bytes copied: what came before was written again", n)
	}
}

// TestReordered: all messages arrive if packets overtake each other, with few timeouts.
func TestReordered(t *testing.T) {
	w := newWorld(t, 3, Config{})
	w.link.faults[reorder] = 0.2
	a, b := w.pair(options{})
	for i := range 30 {
		w.sendOne(a, b, uint64(i), 20000)
	}
	if n := w.ends[0].Count(Timeouts); n > 10 {
		t.Errorf("%d timeouts", n)
	}
}

// TestGhosts: the requester ignores responses to packets that it never sent, or that were
// acknowledged long ago.
func TestGhosts(t *testing.T) {
	w := newWorld(t, 1, Config{})
	a, _ := w.pair(options{psn: 100})
	from, to := w.ends[0], w.ends[1]
	send(t, a, rdma.SendRequest{ID: 1, Op: rdma.Write})
	w.run(time.Millisecond)
	w.loseAll(wire.Acknowledge)
	send(t, a, rdma.SendRequest{ID: 2, Op: rdma.Write})
	from.transmit()
	before := a.requester
	for _, psn := range []wire.PSN{100, 99, 102, 103, 100 + 1<<22, mask24 - 1<<22} {
		for _, s := range []wire.Syndrome{wire.ACK, wire.NAKSequence, wire.NAKRemoteAccess, wire.RNRNAK(1)} {
			for _, o := range []wire.Opcode{wire.RCAcknowledge, wire.RCReadResponseOnly, wire.RCAtomicAcknowledge} {
				from.Receive(w.now, []Arrival{{From: to.gid, Header: wire.Header{Opcode: o, PKey: wire.DefaultPKey, DestQPN: a.Number(), PSN: psn, Syndrome: s}}})
			}
		}
	}
	if a.requester != before {
		t.Errorf("the requester changed from %+v to %+v", before, a.requester)
	}
	from.poll()
	from.want(t, "1 WRITE")
}

// TestBadResponses: a response that does not match its request fails that request.
func TestBadResponses(t *testing.T) {
	for _, c := range []struct {
		op     rdma.Op
		opcode wire.Opcode
		s      wire.Syndrome
	}{{rdma.Write, wire.RCReadResponseOnly, wire.ACK}, {rdma.Read, wire.RCAtomicAcknowledge, wire.ACK}, {rdma.Read, wire.RCReadResponseOnly, wire.ACK},
		{rdma.FetchAdd, wire.RCReadResponseOnly, wire.ACK}, {rdma.FetchAdd, wire.RCAtomicAcknowledge, wire.NAKRemoteAccess}, {rdma.Write, wire.RCAcknowledge, 0x7f}} {
		w := newWorld(t, 1, Config{})
		a, _ := w.pair(options{psn: 100})
		from, to := w.ends[0], w.ends[1]
		send(t, a, rdma.SendRequest{ID: 2, Op: c.op, RemoteAddr: to.base}, from.sge(0, 8))
		from.Progress(w.now, from.out[:])
		from.Receive(w.now, []Arrival{{From: to.gid, Header: wire.Header{Opcode: c.opcode, PKey: wire.DefaultPKey, DestQPN: a.Number(), PSN: 100, Syndrome: c.s}}})
		from.poll()
		from.want(t, "2 IBV_WC_BAD_RESP_ERR")
	}
}

// TestLateMemory: a READ fails if the registration of its local memory ends before the answer
// arrives.
func TestLateMemory(t *testing.T) {
	w := newWorld(t, 1, Config{})
	a, _ := w.pair(options{})
	from, to := w.ends[0], w.ends[1]
	key, err := from.keys.Register(testDomain, from.base, 4096, rdma.LocalWrite)
	must(t, err)
	send(t, a, rdma.SendRequest{ID: 2, Op: rdma.Read, RemoteAddr: to.base, RKey: to.key}, rdma.SGE{Addr: from.base, Length: 4096, LKey: key})
	from.transmit()
	must(t, from.keys.Deregister(key))
	w.run(time.Second)
	from.want(t, "2 IBV_WC_LOC_PROT_ERR")
}

// TestMemoryGoesWhileSending: a SEND fails if the registration of its memory ends while it is being
// sent. Requests before it succeed.
func TestMemoryGoesWhileSending(t *testing.T) {
	w := newWorld(t, 1, Config{Window: 4})
	a, b := w.pair(options{})
	from, to := w.ends[0], w.ends[1]
	key, err := from.keys.Register(testDomain, from.base, 9000, rdma.LocalWrite)
	must(t, err)
	receiveInto(t, b, 1, to.sge(0, 10000))
	send(t, a, rdma.SendRequest{ID: 1, Op: rdma.Write})
	send(t, a, rdma.SendRequest{ID: 2, Op: rdma.Send}, rdma.SGE{Addr: from.base, Length: 9000, LKey: key})
	send(t, a, rdma.SendRequest{ID: 3, Op: rdma.Write})
	from.transmit()
	must(t, from.keys.Deregister(key))
	w.run(time.Second)
	from.want(t, "1 WRITE", "2 IBV_WC_LOC_PROT_ERR", "3 IBV_WC_WR_FLUSH_ERR")
}
