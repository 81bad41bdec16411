package transport

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/unifiedd/unifiedd/rdma"
)

// The messages of a new connection that runs beside an old one, and their place in the registered
// memory.
const (
	late      = 1004 << 10
	lateBytes = 2000
	lateSends = 8
	lateID    = 1 << 40
)

// TestPeerRestarts: one side closes its queue pair during a transfer and opens a new one with the
// same number, as after a restart. Requests of the old peer fail when its retries are exceeded. The
// new peer gets its messages once and in order, although packets of the old connection arrive with
// its number.
func TestPeerRestarts(t *testing.T) {
	check(t, checkRestart)
}

func checkRestart(t *rapid.T) {
	m := drawModel(t)
	m.act(t)
	which := rapid.IntRange(0, 1).Draw(t, "restarts")
	number := m.sides[which].vanish()
	ids := uint32(rapid.SampledFrom([]int{1 << 22, 1 << 23, mask24 - 1<<22}).Draw(t, "later"))
	a, b := m.pair(options{psn: (m.psn + ids) & mask24, mtu: m.mtu, tweak: func(a *rdma.Attributes) { a.Timeout = 6 }})
	if again := []*QueuePair{a, b}[which]; again.Number() != number {
		t.Fatalf("the new queue pair has number %d, and not %d", again.Number(), number)
	}
	news := []*news{m.begin(t, 0, a, b), m.begin(t, 1, b, a)}
	m.finish()
	for _, n := range news {
		n.check(t)
	}
	m.check(t, false)
	known.restarts++
}

// vanish closes the side's queue pair, and makes the next one get its number.
func (s *side) vanish() (number uint32) {
	s.takeFrames(0)
	s.gone = true
	s.q.Close()
	s.collect()
	s.slots[s.q.slot].generation--
	return s.q.Number()
}

// news is messages of a new connection.
type news struct {
	from, to *side
	lengths  []int
}

// begin posts receives at one side and SENDs to them at the other side.
func (m *model) begin(t *rapid.T, from int, q, peer *QueuePair) *news {
	n := &news{from: m.sides[from], to: m.sides[1-from]}
	for i := range lateSends {
		length := rapid.IntRange(0, lateBytes).Draw(t, "length")
		n.lengths = append(n.lengths, length)
		receiveInto(t, peer, uint64(lateID+i), n.to.sge(late+i*lateBytes, lateBytes))
		send(t, q, rdma.SendRequest{ID: uint64(lateID + 100 + i), Op: rdma.Send}, n.from.sge(sources+i, length))
	}
	return n
}

// check checks that the messages have arrived, at least those that completed at the sender, and
// removes their completions and data.
func (n *news) check(t *rapid.T) {
	good, came := 0, 0
	for _, c := range n.from.take(lateID + 100) {
		switch {
		case c.Status == rdma.Success && c.ID == uint64(lateID+100+good):
			good++
		case c.Status != rdma.RetryExceeded && c.Status != rdma.WorkFlushed:
			t.Fatalf("end %d: SEND of the new connection: %s after %d", n.from.index, show(&c), good)
		}
	}
	for _, c := range n.to.take(lateID) {
		if c.Status != rdma.Success {
			continue
		}
		if c.ID != uint64(lateID+came) || int(c.Length) != n.lengths[came] {
			t.Fatalf("end %d: %s is message %d of %d bytes of the new connection", n.to.index, show(&c), came, n.lengths[came])
		}
		same(t, "message of the new connection", n.to.memory(late+came*lateBytes, n.lengths[came]), n.from.before[sources+came:][:n.lengths[came]])
		came++
	}
	if came < good {
		t.Fatalf("end %d: %d messages came, and the peer was told of %d", n.to.index, came, good)
	}
	copy(n.to.memory(late, lateSends*lateBytes), n.to.before[late:])
}

// take removes and returns the completions with the hundred IDs from first on.
func (s *side) take(first uint64) (taken []rdma.WorkCompletion) {
	s.done = slices.DeleteFunc(s.done, func(c rdma.WorkCompletion) bool {
		if c.ID < first || c.ID >= first+100 {
			return false
		}
		taken = append(taken, c)
		return true
	})
	return taken
}
