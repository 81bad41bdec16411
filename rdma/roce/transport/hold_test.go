package transport

import (
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/rdma"
)

// holder is a sender of messages in one packet, and a receiver that delays their ACKs.
type holder struct {
	*testing.T
	w    *world
	a, b *QueuePair
	sent uint64
	acks uint64 // at the last call of expect
}

func newHolder(t *testing.T, c Config) *holder {
	w := newWorld(t, 1, c)
	a, b := w.pair(options{depth: 64})
	return &holder{T: t, w: w, a: a, b: b}
}

func (h *holder) receiver() *end { return h.w.ends[1] }

// message sends n messages, one after the other.
func (h *holder) message(n int) {
	from, to := h.w.ends[0], h.receiver()
	for range n {
		send(h.T, h.a, rdma.SendRequest{ID: h.sent, Op: rdma.Write, RemoteAddr: to.base, RKey: to.key}, from.sge(0, 64))
		h.sent++
		h.w.run(20 * time.Microsecond)
	}
}

// expect checks how many ACKs were sent since its last call, and how many messages are complete in
// all.
func (h *holder) expect(what string, acks, completed uint64) {
	h.Helper()
	h.w.run(20 * time.Microsecond)
	n := h.receiver().Count(AcksSent)
	if got := n - h.acks; got != acks {
		h.Errorf("%s: %d acknowledgements, want %d", what, got, acks)
	}
	if got := uint64(len(h.w.ends[0].done)); got != completed {
		h.Errorf("%s: %d messages are completed, want %d", what, got, completed)
	}
	h.acks = n
}

// patient sends messages until one ACK of the receiver stands for most of them.
func (h *holder) patient(most int) {
	for h.b.limit < most {
		h.message(1)
	}
	h.acks = h.receiver().Count(AcksSent)
	if h.b.limit != most || h.b.pending > 0 || uint64(len(h.w.ends[0].done)) != h.sent {
		h.Fatalf("%d at once, %d kept back", h.b.limit, h.b.pending)
	}
}

// TestHold: a peer that continues to send without ACKs gets one ACK for two messages after a try,
// and later one for more, up to Config.Hold.
func TestHold(t *testing.T) {
	h := newHolder(t, Config{Hold: 8})
	h.message(firstTry)
	h.expect("before it is tried", firstTry, firstTry)
	h.message(1)
	h.expect("the first is kept back", 0, firstTry)
	h.message(1)
	h.expect("one for two", 1, firstTry+2)
	h.message(firstTry)
	h.expect("two at once for a while", firstTry/2, 2*firstTry+2)
	h.message(4)
	h.expect("one for four", 1, 2*firstTry+6)
	h.patient(8)
	h.message(10 * firstTry)
	h.expect("no more than that", 10*firstTry/8, h.sent)
}

// TestHoldPackets: ACKs are delayed for at most a quarter of the window.
func TestHoldPackets(t *testing.T) {
	h := newHolder(t, Config{Hold: 8, Window: 16})
	h.patient(5)
	h.message(50)
	h.expect("four packets behind the first", 10, h.sent)
}

// TestHoldStops: the receiver sends delayed ACKs when nothing has arrived for a while. A peer that
// stops early once has paused, and the receiver delays as many ACKs as before. If it stops early
// twice in a row, the receiver delays fewer.
func TestHoldStops(t *testing.T) {
	h := newHolder(t, Config{Hold: 8})
	h.patient(8)
	h.message(6)
	h.expect("six are kept back", 0, h.sent-6)
	h.receiver().Release()
	h.expect("nothing came for a while", 1, h.sent)
	h.message(8)
	h.expect("it goes on as before", 1, h.sent)
	for range 2 {
		h.message(6)
		h.receiver().Release()
		h.expect("it pauses at six", 1, h.sent)
	}
	h.message(2)
	h.expect("two are kept back", 0, h.sent-2)
	h.message(1)
	h.expect("and no more", 1, h.sent)
}

// TestHoldTries: a peer that waits for each ACK has to wait once for each try, and the tries become
// ever rarer.
func TestHoldTries(t *testing.T) {
	h := newHolder(t, Config{Hold: 8})
	for interval := firstTry; interval <= 4*firstTry; interval *= 2 {
		h.message(interval)
		h.expect("one after the other", uint64(interval), h.sent)
		h.message(1)
		h.expect("it is tried", 0, h.sent-1)
		h.receiver().Release()
		h.expect("in vain", 1, h.sent)
	}
}

// TestHoldTriesFew: the tries also become rarer for a peer that continues without a few ACKs but
// waits without more.
func TestHoldTriesFew(t *testing.T) {
	for _, stop := range []int{2, 3, 5, 7} {
		h := newHolder(t, Config{Hold: 8})
		waits := 0
		for range 100 * firstTry {
			h.message(1)
			if h.b.pending == stop && !h.b.ack {
				h.receiver().Release()
				waits++
			}
		}
		h.w.run(20 * time.Microsecond)
		acks := h.receiver().Count(AcksSent)
		if waits > 8 || acks > uint64(100*firstTry)/uint64(max(1, stop/4)) {
			t.Errorf("a peer that goes on without %d waited %d times, and %d acknowledgements said %d messages", stop-1, waits, acks, 100*firstTry)
		}
	}
}

// TestHoldRepeats: a peer that repeats a message gets its ACK at once, and the next try comes late.
func TestHoldRepeats(t *testing.T) {
	h := newHolder(t, Config{Hold: 8})
	h.message(firstTry + 1)
	h.expect("the last is kept back", firstTry, h.sent-1)
	h.w.run(time.Second) // the sender times out and sends again
	h.expect("it came again", 1, h.sent)
	h.message(2 * firstTry)
	h.expect("one after the other", 2*firstTry, h.sent)
	h.patient(8)
	h.message(6)
	for range 100 { // copies of one packet
		h.b.repeated()
	}
	h.expect("it is told once", 1, h.sent)
	if h.b.limit != 8 || h.b.interval != firstTry {
		t.Errorf("%d at once and %d until the next try, of a peer that stopped once", h.b.limit, h.b.interval)
	}
}

// TestFlushACKs: FlushACKs sends the ACKs that were already delayed at its previous call, and not
// those delayed since.
func TestFlushACKs(t *testing.T) {
	h := newHolder(t, Config{Hold: 4})
	h.patient(4)
	relieve := func(what string, want bool) {
		t.Helper()
		if got := h.receiver().FlushACKs(); got != want {
			t.Errorf("%s: FlushACKs says %v", what, got)
		}
		if want {
			h.expect(what, 1, h.sent)
			return
		}
		h.expect(what, 0, h.sent-uint64(h.b.pending))
	}
	relieve("nothing is kept back", false)
	h.message(2)
	relieve("two are kept back since just now", false)
	h.message(4)
	h.expect("four are said at once, two kept back", 1, h.sent-2)
	relieve("those are others", false)
	relieve("and the same still", true)
	if h.receiver().HasDeferredACKs() {
		t.Error("something is kept back still")
	}
	for range 3 {
		h.message(2)
		relieve("two more", false)
		h.message(1)
		relieve("and a third, slowly", true)
	}
	if h.b.limit != 4 {
		t.Errorf("%d at once, of a peer that is slow", h.b.limit)
	}
	for range 2 {
		h.message(3)
		relieve("three", false)
		relieve("and no more", true)
	}
	if h.b.limit != 1 {
		t.Errorf("%d at once, of a peer that stopped twice at three", h.b.limit)
	}
}
