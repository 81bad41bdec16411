package disk

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/unifiedd/unifiedd/flows/segment"
)

// model is a simple and slow tracker with the expected results.
type model struct {
	marks     []segment.Position // of every batch; the first has number 1
	packets   []uint64
	done      []bool
	written   int // batches before the first gap
	durable   int
	flushing  int // batches that the flush under way covers; 0: none is
	packetsIn uint64
}

func (m *model) complete(i int) {
	m.done[i] = true
	m.packetsIn += m.packets[i]
	for m.written < len(m.done) && m.done[m.written] {
		m.written++
	}
}

// waiting returns the batches in flight.
func (m *model) waiting() (all []int) {
	for i := m.written; i < len(m.done); i++ {
		if !m.done[i] {
			all = append(all, i)
		}
	}
	return all
}

// at returns the position after n batches.
func (m *model) at(n int) segment.Position {
	if n == 0 {
		return segment.Position{}
	}
	return m.marks[n-1]
}

// TestTrack: after every step, both positions equal the model's, for random orders of completion,
// segments and flushes.
func TestTrack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var tr tracker
		var seen progress
		var m model
		current := &segment.Segment{Base: 1 << 40}
		steps := map[string]func(*rapid.T){
			"submit": func(t *rapid.T) {
				if !tr.room() {
					t.Skip("the queue is full")
				}
				if rapid.IntRange(0, 4).Draw(t, "switch") == 0 {
					current = &segment.Segment{Base: current.Base + 1<<40}
				}
				packets, length := rapid.Uint64Range(0, 300).Draw(t, "packets"), rapid.Uint64Range(1, 1<<20).Draw(t, "length")
				current.Next += length
				tr.submit(current, current.Next, packets, packets*100)
				last := m.at(len(m.marks))
				m.marks = append(m.marks, segment.Position{Number: last.Number + 1, Packets: last.Packets + packets, Bytes: last.Bytes + packets*100, Segment: current, End: current.Next})
				m.packets, m.done = append(m.packets, packets), append(m.done, false)
			},
			"complete": func(t *rapid.T) {
				waiting := m.waiting()
				if len(waiting) == 0 {
					t.Skip("nothing is in flight")
				}
				i := rapid.SampledFrom(waiting).Draw(t, "batch")
				m.complete(i)
				tr.complete(uint64(i) + 1)
			},
			"flush": func(t *rapid.T) { m.flushing = m.written },
			"flushed": func(t *rapid.T) {
				m.durable = max(m.durable, m.flushing)
				tr.durable = m.at(m.durable)
			},
			"": func(t *rapid.T) {
				seen.publish(&tr)
				m.compare(t, &tr, &seen)
			},
		}
		t.Repeat(steps)
	})
}

func (m *model) compare(t *rapid.T, tr *tracker, seen *progress) {
	if tr.written != m.at(m.written) || tr.submitted != m.at(len(m.marks)) || tr.packetsWritten != m.packetsIn {
		t.Fatalf("written %+v of %+v, want %+v; %d packets written, want %d", tr.written, tr.submitted, m.at(m.written), tr.packetsWritten, m.packetsIn)
	}
	if tr.idle() != (m.written == len(m.marks)) || tr.room() != (len(m.marks)-m.written < queueDepth) {
		t.Fatalf("idle %t, room %t, with %d of %d batches written", tr.idle(), tr.room(), m.written, len(m.marks))
	}
	written, durable := seen.read()
	if written != m.at(m.written).Status() || durable != m.at(m.durable).Status() || seen.packetsWritten() != m.packetsIn {
		t.Fatalf("shown: written %+v, durable %+v, %d packets", written, durable, seen.packetsWritten())
	}
	if durable.Packets > written.Packets || durable.Bytes > written.Bytes {
		t.Fatalf("more is durable than written: %+v, %+v", durable, written)
	}
	for _, at := range m.marks {
		if end := tr.durableIn(at.Segment); end > at.Segment.Next || end > 0 && at.Segment != tr.durable.Segment {
			t.Fatalf("durable up to %d in a segment of %d", end, at.Segment.Next)
		}
	}
}

// TestTrackWindow: the tracker takes a full queue that completes in reverse order.
func TestTrackWindow(t *testing.T) {
	var tr tracker
	s := &segment.Segment{}
	for round := range uint64(3) {
		for i := range uint64(queueDepth) {
			if !tr.room() {
				t.Fatalf("no room for batch %d of %d", i, queueDepth)
			}
			tr.submit(s, (round*queueDepth+i+1)*512, 2, 20)
		}
		if tr.room() {
			t.Fatal("there is room beyond the queue depth")
		}
		for i := uint64(queueDepth); i > 1; i-- {
			tr.complete(round*queueDepth + i)
			if tr.written.Number != round*queueDepth {
				t.Fatalf("batch %d is written, and batch %d is not", tr.written.Number, round*queueDepth+1)
			}
		}
		tr.complete(round*queueDepth + 1)
		if want := (segment.Position{Number: (round + 1) * queueDepth, Packets: (round + 1) * queueDepth * 2, Bytes: (round + 1) * queueDepth * 20, Segment: s, End: (round + 1) * queueDepth * 512}); tr.written != want {
			t.Fatalf("written %+v, want %+v", tr.written, want)
		}
	}
}
