package flows

import (
	"os"
	"testing"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/captures"
)

// TestRingWrapsAround fills a device three times over. The device has the newest packets, as many as fit, and
// readers accept the exported capture.
func TestRingWrapsAround(t *testing.T) {
	for _, layout := range layouts {
		t.Run(layout, func(t *testing.T) {
			if layout != "slot" {
				testenv.Long(t, "the slot layout stands for the others")
			}
			dev := testenv.Loop(t, testenv.DiskFile(t, 16<<20), 0) // seven segments of 2 MiB
			c := newClinic(t, "", "device: "+dev+", layout: "+layout+", segment: {size: 2MiB}, flush: 20ms, durable: 50ms")
			c.start(t)
			for range 4 {
				c.capture(t, 10000)
			}
			testenv.Must(t, c.ill.Stop())
			s := c.ill.Status()
			if s.Segments < 20 || s.Durable.Packets != c.sent || s.Durable.Offset > 16<<20 {
				t.Errorf("%d segments, %d of %d packets durable, up to offset %d", s.Segments, s.Durable.Packets, c.sent, s.Durable.Offset)
			}
			name := captures.ExportRing(t, dev)
			got := captures.Packets(t, name)
			if len(got) < 4*1200 { // of the four segments that must be full, with records of 1536 bytes
				t.Errorf("%d packets are left", len(got))
			}
			inSequence(t, got, c.sent-uint64(len(got)), uint64(len(got)))
			heldTrue(t, s.Held, captures.Records(t, name))
			if h := s.Held; h.Ring == nil || *h.Ring != (status.Ring{Slots: 7, SegmentBytes: 2 << 20, Generation: s.Segments}) || h.Segments != 6 || h.Bytes != 6*2<<20 { // one is prepared
				t.Errorf("held: %+v, ring %+v", h, h.Ring)
			}
			captures.Readable(t, name)
		})
	}
}

// TestRingGoesOn starts a flow on the ring of an earlier run. The flow keeps the ring's segments, also with a
// damaged superblock. It refuses a ring with segments of another size, unless force is set.
func TestRingGoesOn(t *testing.T) {
	dev := testenv.Loop(t, testenv.DiskFile(t, 8<<20), 0) // three segments of 2 MiB
	to := "device: " + dev + ", flush: 20ms, segment: "
	c := newClinic(t, "", to+"{size: 2MiB}")
	for run := range 5 {
		before := c.ill.Status().Held
		c.start(t)
		if h := c.ill.Status().Held; run > 0 && (h.Newest == nil || before.Newest == nil || !h.Newest.Equal(*before.Newest)) {
			t.Errorf("run %d begins with %+v, and the one before ended with %+v", run, h, before)
		}
		c.capture(t, 200)
		testenv.Must(t, c.ill.Stop())
		heldTrue(t, c.ill.Status().Held, captures.Records(t, captures.ExportRing(t, dev)))
		got := captures.Packets(t, captures.ExportRing(t, dev))
		if len(got) < min(2, run+1)*200 {
			t.Errorf("after run %d there are %d packets", run, len(got))
		}
		inSequence(t, got, c.sent-uint64(len(got)), uint64(len(got)))
		if err := testenv.WriteSync(dev, []byte{byte(run)}, 50); err != nil { // reserved bytes of the superblock
			t.Fatal(err)
		}
	}
	before := captures.Packets(t, captures.ExportRing(t, dev))
	c.prescribe(t, "", to+"{size: 1MiB}")
	err := c.try(t)
	if err == nil {
		t.Fatal("a ring with other segments was overwritten")
	}
	testenv.MessageNames(t, err.Error(), []string{dev, "2097152 bytes, not 1048576", "segment.size to 2MiB", "export", "force: true"})
	if after := captures.Packets(t, captures.ExportRing(t, dev)); len(after) != len(before) {
		t.Errorf("%d packets became %d", len(before), len(after))
	}
	c.prescribe(t, "", to+"{size: 1MiB}, force: true")
	c.sent = 0
	c.start(t)
	c.capture(t, 50)
	testenv.Must(t, c.ill.Stop())
	inSequence(t, captures.Packets(t, captures.ExportRing(t, dev)), 0, 50)
}

// TestRingTellsOfHeads: the status counts a segment of a ring whose head is damaged, and the segment's number
// is not used again.
func TestRingTellsOfHeads(t *testing.T) {
	dev := testenv.Loop(t, testenv.DiskFile(t, 16<<20), 0)
	c := newClinic(t, "", "device: "+dev+", segment: {size: 2MiB}, flush: 20ms, durable: 50ms")
	c.start(t)
	c.capture(t, 3000)
	testenv.Must(t, c.ill.Stop())
	newest := c.ill.Status().Held.Ring.Generation
	f, err := os.OpenFile(dev, os.O_RDWR, 0)
	testenv.Must(t, err)
	at := int64(1<<20 + newest%7*(2<<20))
	for range 2 { // also the head of the next segment, which was prepared
		if _, err := f.WriteAt(make([]byte, 512), at); err != nil {
			t.Fatal(err)
		}
		at += 2 << 20
	}
	testenv.Must(t, f.Close())
	c.start(t)
	c.capture(t, 100)
	s := await(t, c.ill, "the packets to be durable", func(s status.Flow) bool { return s.Durable.Packets == 100 })
	if h := s.Held; h.Unreadable != 1 || h.Ring.Generation != newest+1 {
		t.Errorf("held: %+v, ring %+v; the newest segment was %d", h, h.Ring, newest)
	}
}
