package disk

import (
	"log/slog"
	"strings"
	"testing"
	"time"

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
