package segment

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
	"github.com/unifiedd/unifiedd/internal/testenv/captures"
)

// ringLab is a manager on a device, without a flow.
type ringLab struct {
	to  config.To
	log bytes.Buffer
}

func newRingLab(t *testing.T) *ringLab {
	t.Helper()
	testenv.Root(t)
	dev := testenv.Loop(t, testenv.DiskFile(t, 8<<20), 0) // six segments
	return &ringLab{to: config.To{Device: dev, Segment: config.Segment{Size: config.MiB}, Layout: config.LayoutPacked}}
}

func (s *ringLab) open(t *testing.T) (*Manager, error) {
	t.Helper()
	return Open(Config{To: s.to, Head: labHead, Log: slog.New(slog.NewTextHandler(&s.log, nil))})
}

// mustOpen opens the manager and acquires a segment.
func (s *ringLab) mustOpen(t *testing.T) (*Manager, *Segment) {
	t.Helper()
	st, err := s.open(t)
	testenv.Must(t, err)
	return st, acquire(t, st)
}

func acquire(t *testing.T, s *Manager) (seg *Segment) {
	t.Helper()
	testenv.Wait(t, 5*time.Second, "a segment", func() bool { seg = s.Acquire(time.Now()); return seg != nil })
	return seg
}

// write writes a batch of two packets to a segment directly, numbered from n in the run.
func (s *ringLab) write(t *testing.T, seg *Segment, n uint64) {
	t.Helper()
	out := make([]byte, pcapng.MinMarkLen)
	for i := range uint64(2) {
		data := bytes.Repeat([]byte{byte(n + i)}, 100)
		block := pcapng.PacketBlockLen(100+pcapng.NumberLen, 4)
		at := len(out)
		out = append(out, make([]byte, block)...)
		pcapng.PutPacketHeader(out[at:], 0, n+i, 100, 100, block)
		copy(out[at+pcapng.PacketHeaderLen:], data)
		pcapng.PutNumberedTail(out[at+pcapng.PacketHeaderLen+100:], 100, block, seg.firstPacket+n+i)
	}
	at := len(out)
	out = append(out, make([]byte, 512-at)...)
	pcapng.PutPadding(out[at:])
	b := seg.Batch(0, n)
	b.Length, b.Packets = 512, 2
	pcapng.PutBatchHeader(out[:pcapng.MinMarkLen], &b)
	testenv.Must(t, testenv.WriteSync(s.to.Device, out, int64(seg.Base+seg.Next)))
	seg.Next, seg.Sequence = seg.Next+512, seg.Sequence+1
	seg.Last.Packets = n + 2
}

// crash closes a manager as a crash does: it completes no segment.
func (s *Manager) crash(t *testing.T) {
	t.Helper()
	close(s.stop)
	select {
	case <-s.ready: // prepareSegments does not discard it, and waits for the time of acquisition
		s.activated <- time.Now()
	case <-time.After(100 * time.Millisecond):
	}
	close(s.retired)
	s.running.Wait()
	testenv.Must(t, s.closeDevice())
}

// TestRingRecovers: a ring recovers segments without an end marker, and reuses a generation that
// was never written to.
func TestRingRecovers(t *testing.T) {
	s := newRingLab(t)
	st, seg := s.mustOpen(t)
	s.write(t, seg, 0)
	s.write(t, seg, 2)
	first := seg.Number
	st.crash(t)
	st, seg = s.mustOpen(t)
	if seg.Number <= first || !strings.Contains(s.log.String(), "segment recovered") {
		t.Errorf("segment %d follows %d\n%s", seg.Number, first, s.log.String())
	}
	s.write(t, seg, 0)
	st.Retire(seg)
	testenv.Must(t, st.Close())
	unused := seg.Number + 1
	for range 10 { // starts without a capture use no generation
		st, err := s.open(t)
		testenv.Must(t, err)
		testenv.Must(t, st.Close())
	}
	st, seg = s.mustOpen(t)
	if seg.Number != unused {
		t.Errorf("segment %d follows %d", seg.Number, unused-1)
	}
	st.Retire(seg)
	testenv.Must(t, st.Close())
	if n := len(captures.Packets(t, captures.ExportRing(t, s.to.Device))); n != 6 {
		t.Errorf("%d packets, want 6", n)
	}
}

// TestRingKilledWithoutPackets: runs that are killed before a packet has come take no slot of others, so that what the ring holds
// stays, and no two of them have the same numbers. A run after one that ended begins with the same number again.
func TestRingKilledWithoutPackets(t *testing.T) {
	s := newRingLab(t)
	st, seg := s.mustOpen(t)
	for n := range uint64(3) {
		s.write(t, seg, 2*n)
		st.Retire(seg)
		seg = acquire(t, st)
	}
	st.Retire(seg)
	testenv.Must(t, st.Close())
	before := len(captures.Packets(t, captures.ExportRing(t, s.to.Device)))
	numbers := map[uint64]bool{}
	for range 20 {
		st, err := s.open(t)
		testenv.Must(t, err)
		first, _ := st.Numbers()
		if numbers[first] {
			t.Errorf("two runs begin with packet %d", first)
		}
		numbers[first] = true
		killed, err := os.ReadFile(s.to.Device)
		testenv.Must(t, err, st.Close(), testenv.WriteSync(s.to.Device, killed, 0)) // what a killed run leaves
	}
	if after := len(captures.Packets(t, captures.ExportRing(t, s.to.Device))); before != 6 || after != before {
		t.Errorf("the ring held %d packets, and holds %d", before, after)
	}
	st, err := s.open(t)
	testenv.Must(t, err)
	ended, _ := st.Numbers()
	testenv.Must(t, st.Close())
	st, seg = s.mustOpen(t)
	if first, _ := st.Numbers(); first != ended || seg.firstPacket != ended || numbers[ended] {
		t.Errorf("after a run that began with packet %d, one begins with packet %d, and its segment with %d", ended, first, seg.firstPacket)
	}
	s.write(t, seg, 0)
	st.Retire(seg)
	testenv.Must(t, st.Close())
	if n := len(captures.Packets(t, captures.ExportRing(t, s.to.Device))); n != before+2 {
		t.Errorf("%d packets, want %d", n, before+2)
	}
}

// TestRingWaitsForSlots: the manager does not reuse a slot while its last segment is in use.
func TestRingWaitsForSlots(t *testing.T) {
	s := newRingLab(t)
	st, seg := s.mustOpen(t)
	all := []*Segment{seg}
	for range 5 {
		all = append(all, acquire(t, st))
	}
	time.Sleep(50 * time.Millisecond)
	if more := st.Acquire(time.Now()); more != nil {
		t.Fatalf("segment %d was begun in the slot of %d", more.Number, all[0].Number)
	}
	st.Retire(all[0])
	if more := acquire(t, st); more.Base != all[0].Base {
		t.Errorf("at %d, not %d", more.Base, all[0].Base)
	} else {
		all = append(all, more)
	}
	for _, seg := range all[1:] {
		st.Retire(seg)
	}
	testenv.Must(t, st.Close())
}

// TestRingRefuses: the manager refuses devices that hold other data.
func TestRingRefuses(t *testing.T) {
	s := newRingLab(t)
	st, err := s.open(t)
	testenv.Must(t, err)
	testenv.Must(t, st.Close())
	damage := func(at int64) {
		testenv.Must(t, testenv.WriteSync(s.to.Device, []byte{7}, at))
	}
	damage(100)
	damage(8<<20 - 100)
	if _, err = s.open(t); err == nil {
		t.Fatal("a ring with both superblocks damaged was opened")
	}
	testenv.MessageNames(t, err.Error(), []string{s.to.Device, "damaged", "copy", "force: true"})
	s.to.Segment.Size = 4 * config.MiB
	s.to.Force = true
	if _, err = s.open(t); err == nil {
		t.Fatal("there is room for three segments of 4 MiB")
	}
	testenv.MessageNames(t, err.Error(), []string{s.to.Device, "too small", "2097152 bytes at most"})
	s.to.Segment.Size = 2 * config.MiB
	st, err = s.open(t)
	testenv.Must(t, err)
	testenv.Must(t, st.Close())
	s.to.Force = false
	st, err = s.open(t)
	testenv.Must(t, err)
	if st.ring.Size != 2<<20 || st.ring.Slots != 3 {
		t.Errorf("%+v", st.ring.Ring)
	}
	testenv.Must(t, st.Close())
}
