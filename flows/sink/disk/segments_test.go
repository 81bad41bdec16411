package disk

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/segment"
	"github.com/unifiedd/unifiedd/internal/pcapng"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/nvme"
)

// TestSegmentsWait: when the disk's queue has as many segments as it takes, packets wait until one
// is durable, and the flow does not fail.
func TestSegmentsWait(t *testing.T) {
	o := &segmentWriter{retired: make([]*segment.Segment, segment.MaxOpen-1)}
	if ok, err := o.place(1, time.Now(), time.Now()); ok || err != nil {
		t.Errorf("another segment was begun: %v, %v", ok, err)
	}
}

// TestSegmentNotBegun: the manager finishes and closes a segment that the disk's queue refused.
func TestSegmentNotBegun(t *testing.T) {
	testenv.Leaks(t)
	to := config.To{File: testenv.DiskDir(t) + "/md", Segment: config.Segment{Size: config.MiB}, Prepare: config.PrepareAllocate, Layout: config.LayoutPacked}
	head := func(s pcapng.Segment) ([]byte, error) {
		return pcapng.AppendSegmentHead(nil, pcapng.Section{}, []pcapng.Interface{{Name: "a", LinkType: 1}}, s)
	}
	s, err := segment.Open(segment.Config{To: to, Head: head, Log: slog.New(slog.DiscardHandler)})
	testenv.Must(t, err)
	o := &segmentWriter{manager: s, queue: &nvme.Queue{}} // a queue that takes no target
	testenv.Wait(t, 5*time.Second, "a segment", func() bool { _, err = o.place(1, time.Now(), time.Now()); return err != nil })
	if !strings.Contains(err.Error(), "begin segment") {
		t.Error(err)
	}
	testenv.Check(t, s.Close())
}

// TestIntervals: whenever packets come, a segment's interval begins a whole number of intervals after the first one, has its
// first packet in it, and begins with a second if intervals are whole seconds: so no two have the same name, and none drifts.
func TestIntervals(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		every := rapid.SampledFrom([]time.Duration{250 * time.Millisecond, time.Second, 3 * time.Second, time.Minute}).Draw(t, "every")
		o := &segmentWriter{every: every}
		at := time.Date(2026, 11, 20, 14, 0, 0, 0, time.UTC).Add(time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "first")))
		first := o.intervalStart(at)
		if whole := every%time.Second == 0; whole && first != at.Truncate(time.Second) || !whole && first != at {
			t.Fatalf("the first interval, of a packet at %v, begins at %v", at, first)
		}
		o.current = &segment.Segment{Opened: first}
		for range rapid.IntRange(1, 50).Draw(t, "segments") {
			last := o.current.Opened
			if o.over(at) != (at.Sub(last) >= every) || !o.ends().Equal(last.Add(every)) {
				t.Fatalf("at %v the interval of %v is over: %v; it ends at %v", at, last, o.over(at), o.ends())
			}
			at = last.Add(every + time.Duration(rapid.Int64Range(0, int64(3*every)).Draw(t, "silence")))
			begins := o.intervalStart(at)
			if begins.After(at) || at.Sub(begins) >= every || begins.Sub(first)%every != 0 || !begins.After(last) {
				t.Fatalf("after the interval of %v, that of a packet at %v begins at %v", last, at, begins)
			}
			o.current = &segment.Segment{Opened: begins}
		}
	})
}
