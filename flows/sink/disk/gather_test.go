package disk

import (
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/segment"
	"github.com/unifiedd/unifiedd/flows/worker"
	"github.com/unifiedd/unifiedd/umem"
)

// TestGathers: a log gathers messages while a write is under way, and during a flush if
// acknowledgements do not wait for the flush; the worker then waits for the disk, not for the age
// of the batch.
func TestGathers(t *testing.T) {
	for _, one := range []struct {
		acknowledge      config.Acknowledge
		writing, flushed bool
		want             bool
	}{
		{config.AcknowledgeReceived, false, true, false},
		{config.AcknowledgeReceived, true, true, true},
		{config.AcknowledgeReceived, false, false, true},
		{config.AcknowledgeWritten, true, true, true},
		{config.AcknowledgeWritten, false, false, false},
		{config.AcknowledgeDurable, true, false, true},
		{config.AcknowledgeDurable, false, false, false},
	} {
		l := &Writer{gather: true, gatherFlushes: one.acknowledge == config.AcknowledgeReceived}
		l.segments = &segmentWriter{flushed: one.flushed}
		l.out = l.segments
		if one.writing {
			l.segments.track.submit(&segment.Segment{}, 4096, 1, 100)
		}
		if got := l.gathers(); got != one.want {
			t.Errorf("%+v: %v", one, got)
		}
		now := time.Now()
		l.opened = now
		if waits := l.Deadline(now).After(now); waits != one.want {
			t.Errorf("%+v: the worker waits: %v", one, waits)
		}
		if l.segments.track.complete(1); one.writing && one.flushed && l.gathers() {
			t.Errorf("%+v: it waits for what is written", one)
		}
	}
	if (&Writer{gather: true}).gathers() {
		t.Error("a stream is no disk")
	}
}

// TestDue: the worker waits no longer than until the next flush, the next attempt of a write for which the disk had no
// space, and the name of a segment.
func TestDue(t *testing.T) {
	now := time.Now()
	for _, one := range []struct {
		name    string
		prepare func(*segmentWriter)
		want    time.Duration // 0: nothing is due
	}{
		{"nothing is written", func(*segmentWriter) {}, 0},
		{"a flush is due later", func(o *segmentWriter) { o.track.complete(1); o.nextSync = now.Add(7 * time.Millisecond) }, 7 * time.Millisecond},
		{"a flush waits for the segment's name", func(o *segmentWriter) { o.track.complete(1) }, time.Millisecond},
		{"a flush is under way", func(o *segmentWriter) { o.track.complete(1); o.flushed = false }, 0},
		{"only full segments are flushed", func(o *segmentWriter) { o.track.complete(1); o.sync = 0 }, 0},
		{"the disk had no space", func(o *segmentWriter) {
			o.retries.frames, o.retries.next = make([]umem.Frame, 1), now.Add(segment.RetryInterval)
		}, segment.RetryInterval},
	} {
		t.Run(one.name, func(t *testing.T) {
			o := &segmentWriter{current: &segment.Segment{}, sync: time.Second, flushed: true}
			o.track.submit(o.current, 4096, 1, 100)
			one.prepare(o)
			want := now.Add(worker.MaxWait)
			if one.want != 0 {
				want = now.Add(one.want)
			}
			if got := (&Writer{out: o, segments: o}).Deadline(now); !got.Equal(want) {
				t.Errorf("after %v, not %v", got.Sub(now), want.Sub(now))
			}
		})
	}
}
