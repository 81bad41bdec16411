package flows

import (
	"bytes"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/internal/pcapng"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestRingWrapsAround fills a device three times over. The newest packets are on it,
// as many as fit, and readers take what is exported.
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
			if err := c.ill.Stop(); err != nil {
				t.Fatal(err)
			}
			s := c.ill.Status()
			if s.Segments < 20 || s.Durable.Packets != c.sent || s.Durable.Offset > 16<<20 {
				t.Errorf("%d segments, %d of %d packets durable, up to offset %d", s.Segments, s.Durable.Packets, c.sent, s.Durable.Offset)
			}
			name := exported(t, dev)
			got := packets(t, name)
			if len(got) < 4*1200 { // of the four segments that must be full, with records of 1536 bytes
				t.Errorf("%d packets are left", len(got))
			}
			inSequence(t, got, c.sent-uint64(len(got)), uint64(len(got)))
			heldTrue(t, s.Held, records(t, name))
			if h := s.Held; h.Ring == nil || *h.Ring != (HeldRing{Slots: 7, SegmentBytes: 2 << 20, Generation: s.Segments}) || h.Segments != 6 || h.Bytes != 6*2<<20 { // one is prepared
				t.Errorf("held: %+v, ring %+v", h, h.Ring)
			}
			readWithoutComplaint(t, name)
		})
	}
}

// TestRingGoesOn starts a flow on the ring of the run before: with its superblock
// damaged, with other segments, with its segments kept.
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
		if err := c.ill.Stop(); err != nil {
			t.Fatal(err)
		}
		heldTrue(t, c.ill.Status().Held, records(t, exported(t, dev)))
		got := packets(t, exported(t, dev))
		if len(got) < min(2, run+1)*200 {
			t.Errorf("after run %d there are %d packets", run, len(got))
		}
		inSequence(t, got, c.sent-uint64(len(got)), uint64(len(got)))
		if err := writeSync(dev, []byte{byte(run)}, 50); err != nil { // reserved bytes of the superblock
			t.Fatal(err)
		}
	}
	before := packets(t, exported(t, dev))
	c.prescribe(t, "", to+"{size: 1MiB}")
	err := c.try(t)
	if err == nil {
		t.Fatal("a ring with other segments was overwritten")
	}
	sayAll(t, err.Error(), []string{dev, "2097152 bytes, not 1048576", "segment.size to 2MiB", "export", "force: true"})
	if after := packets(t, exported(t, dev)); len(after) != len(before) {
		t.Errorf("%d packets became %d", len(before), len(after))
	}
	c.prescribe(t, "", to+"{size: 1MiB}, force: true")
	c.sent = 0
	c.start(t)
	c.capture(t, 50)
	if err := c.ill.Stop(); err != nil {
		t.Fatal(err)
	}
	inSequence(t, packets(t, exported(t, dev)), 0, 50)
}

// shelf is a store on a device, without a flow.
type shelf struct {
	to  config.To
	log bytes.Buffer
}

func newShelf(t *testing.T) *shelf {
	t.Helper()
	testenv.Root(t)
	dev := testenv.Loop(t, testenv.DiskFile(t, 8<<20), 0) // six segments
	return &shelf{to: config.To{Device: dev, Segment: config.Segment{Size: config.MiB}, Layout: config.LayoutPacked}}
}

func (s *shelf) open(t *testing.T) (*store, error) {
	t.Helper()
	return openStore(s.to, cellarHead, slog.New(slog.NewTextHandler(&s.log, nil)), nil)
}

// mustOpen opens the store and takes a segment.
func (s *shelf) mustOpen(t *testing.T) (*store, *segment) {
	t.Helper()
	st, err := s.open(t)
	if err != nil {
		t.Fatal(err)
	}
	return st, taken(t, st)
}

func taken(t *testing.T, s *store) (seg *segment) {
	t.Helper()
	testenv.Wait(t, 5*time.Second, "a segment", func() bool { seg = s.take(time.Now()); return seg != nil })
	return seg
}

// write writes a batch of two packets, numbered from n on in the run, to a segment,
// past the flow.
func (s *shelf) write(t *testing.T, seg *segment, n uint64) {
	t.Helper()
	out := make([]byte, pcapng.MinMarkLen)
	for i := range uint64(2) {
		data := bytes.Repeat([]byte{byte(n + i)}, 100)
		block := pcapng.PacketBlockLen(100+pcapng.NumberLen, 4)
		at := len(out)
		out = append(out, make([]byte, block)...)
		pcapng.PutPacketHeader(out[at:], 0, n+i, 100, 100, block)
		copy(out[at+pcapng.PacketHeaderLen:], data)
		pcapng.PutNumberedTail(out[at+pcapng.PacketHeaderLen+100:], 100, block, seg.first+n+i)
	}
	at := len(out)
	out = append(out, make([]byte, 512-at)...)
	pcapng.PutPadding(out[at:])
	b := seg.batch(0, n)
	b.Length, b.Packets = 512, 2
	pcapng.PutBatchHeader(out[:pcapng.MinMarkLen], &b)
	if err := writeSync(s.to.Device, out, int64(seg.base+seg.next)); err != nil {
		t.Fatal(err)
	}
	seg.next, seg.sequence = seg.next+512, seg.sequence+1
	seg.last.packets = n + 2
}

// abandon closes a store as a crash does: nothing of its segments is completed.
func (s *store) abandon(t *testing.T) {
	t.Helper()
	close(s.stop)
	select {
	case <-s.ready: // its supplier does not discard it, and waits to hear when it was taken
		s.begun <- time.Now()
	case <-time.After(100 * time.Millisecond):
	}
	close(s.back)
	s.running.Wait()
	if err := s.closeDevice(); err != nil {
		t.Fatal(err)
	}
}

// TestRingRecovers leaves a segment without its end, twice, and one that was never
// written to.
func TestRingRecovers(t *testing.T) {
	s := newShelf(t)
	st, seg := s.mustOpen(t)
	s.write(t, seg, 0)
	s.write(t, seg, 2)
	first := seg.number
	st.abandon(t)
	st, seg = s.mustOpen(t)
	if seg.number <= first || !strings.Contains(s.log.String(), "recovered a segment") {
		t.Errorf("segment %d follows %d\n%s", seg.number, first, s.log.String())
	}
	s.write(t, seg, 0)
	st.give(seg)
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	unused := seg.number + 1
	for range 10 { // starts that capture nothing use nothing up
		st, err := s.open(t)
		if err != nil {
			t.Fatal(err)
		}
		if err := st.Close(); err != nil {
			t.Fatal(err)
		}
	}
	st, seg = s.mustOpen(t)
	if seg.number != unused {
		t.Errorf("segment %d follows %d", seg.number, unused-1)
	}
	st.give(seg)
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	if n := len(packets(t, exported(t, s.to.Device))); n != 6 {
		t.Errorf("%d packets, want 6", n)
	}
}

// TestRingWaitsForSlots: no slot is begun anew while its last segment is in use.
func TestRingWaitsForSlots(t *testing.T) {
	s := newShelf(t)
	st, seg := s.mustOpen(t)
	all := []*segment{seg}
	for range 5 {
		all = append(all, taken(t, st))
	}
	time.Sleep(50 * time.Millisecond)
	if more := st.take(time.Now()); more != nil {
		t.Fatalf("segment %d was begun in the slot of %d", more.number, all[0].number)
	}
	st.give(all[0])
	if more := taken(t, st); more.base != all[0].base {
		t.Errorf("at %d, not %d", more.base, all[0].base)
	} else {
		all = append(all, more)
	}
	for _, seg := range all[1:] {
		st.give(seg)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestRingRefuses opens a store on devices that hold something else.
func TestRingRefuses(t *testing.T) {
	s := newShelf(t)
	st, err := s.open(t)
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	damage := func(at int64) {
		if err := writeSync(s.to.Device, []byte{7}, at); err != nil {
			t.Fatal(err)
		}
	}
	damage(100)
	damage(8<<20 - 100)
	if _, err = s.open(t); err == nil {
		t.Fatal("a ring with both superblocks damaged was opened")
	}
	sayAll(t, err.Error(), []string{s.to.Device, "damaged", "copy", "force: true"})
	s.to.Segment.Size = 4 * config.MiB
	s.to.Force = true
	if _, err = s.open(t); err == nil {
		t.Fatal("there is room for three segments of 4 MiB")
	}
	sayAll(t, err.Error(), []string{s.to.Device, "too small", "2097152 bytes at most"})
	s.to.Segment.Size = 2 * config.MiB
	st, err = s.open(t)
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	s.to.Force = false
	if st, err = s.open(t); err != nil {
		t.Fatal(err)
	}
	if st.device.Size != 2<<20 || st.device.Slots != 3 {
		t.Errorf("%+v", st.device.Ring)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestRingTellsOfHeads: a segment of a ring whose head is damaged is counted, and its number is not used again.
func TestRingTellsOfHeads(t *testing.T) {
	dev := testenv.Loop(t, testenv.DiskFile(t, 16<<20), 0)
	c := newClinic(t, "", "device: "+dev+", segment: {size: 2MiB}, flush: 20ms, durable: 50ms")
	c.start(t)
	c.capture(t, 3000)
	if err := c.ill.Stop(); err != nil {
		t.Fatal(err)
	}
	newest := c.ill.Status().Held.Ring.Generation
	f, err := os.OpenFile(dev, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	at := int64(1<<20 + newest%7*(2<<20))
	for range 2 { // also that of the segment behind, which was prepared
		if _, err := f.WriteAt(make([]byte, 512), at); err != nil {
			t.Fatal(err)
		}
		at += 2 << 20
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	c.start(t)
	c.capture(t, 100)
	s := await(t, c.ill, "the packets to be durable", func(s FlowStatus) bool { return s.Durable.Packets == 100 })
	if h := s.Held; h.Unreadable != 1 || h.Ring.Generation != newest+1 {
		t.Errorf("held: %+v, ring %+v; the newest segment was %d", h, h.Ring, newest)
	}
}
