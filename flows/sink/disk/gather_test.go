package disk

import (
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/segment"
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
