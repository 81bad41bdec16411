package flows

import (
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/nvme"
)

// TestSegmentsWait: with as many segments not yet durable as the disk's queue takes,
// packets wait for one of them; that is no reason to fail.
func TestSegmentsWait(t *testing.T) {
	o := &output{retired: make([]*segment, maxOpen-1)}
	if ok, err := o.place(1, time.Now()); ok || err != nil {
		t.Errorf("another segment was begun: %v, %v", ok, err)
	}
}

// TestSegmentNotBegun: a segment that the disk's queue does not take is finished and
// closed all the same.
func TestSegmentNotBegun(t *testing.T) {
	testenv.Leaks(t)
	c := newCellar(t)
	s, seg := c.begun(t)
	s.give(seg)
	o := &output{store: s, queue: &nvme.Queue{}} // a queue without places
	err := error(nil)
	testenv.Wait(t, 5*time.Second, "a segment", func() bool { _, err = o.place(1, time.Now()); return err != nil })
	if !strings.Contains(err.Error(), "begin segment") {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
