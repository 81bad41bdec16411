package pcapng

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// segment builds a segment file in memory.
type segment struct {
	file    []byte
	align   uint32
	id      SegmentID
	next    uint64 // packet number
	batches []written
}

// written is one batch of a segment under test.
type written struct {
	offset, length int
	packets        []packet
}

func newSegment(align uint32) *segment {
	s := &segment{align: align, id: SegmentID{1, 2, 3, byte(align >> 8)}, next: 1000}
	head, err := AppendSegmentHead(nil, testSection, testInterfaces, Segment{ID: s.id, Align: align, FirstPacket: s.next})
	if err != nil {
		panic(err)
	}
	s.file = head
	return s
}

// layout of a batch: the mark's length, and the multiple to which blocks are rounded up.
type layout struct{ mark, block uint32 }

var (
	slotLayout   = layout{512, 512}
	packedLayout = layout{MinMarkLen, 4}
)

// add writes one batch that declares everything below durable.
func (s *segment) add(l layout, durable uint64, packets ...packet) {
	start := len(s.file)
	s.file = append(s.file, poisoned(int(l.mark))...)
	for _, p := range packets {
		s.file = appendPacket(s.file, p, l.block)
	}
	if len(packets)%2 == 1 {
		s.file = AppendStatistics(s.file, Statistics{Interface: 2, Time: packets[0].ns, Received: 9})
	}
	if n := PaddingLen(int64(len(s.file)), s.align); n > 0 {
		at := len(s.file)
		s.file = append(s.file, poisoned(int(n))...)
		PutPadding(s.file[at:])
	}
	s.batches = append(s.batches, written{start, len(s.file) - start, packets})
	b := s.batch(len(s.batches) - 1)
	b.Durable, b.FirstPacket = durable, s.next
	PutBatchHeader(s.file[start:][:l.mark], &b)
	s.next += uint64(len(packets))
}

func (s *segment) batch(i int) Batch {
	w := s.batches[i]
	return Batch{
		Segment: s.id, Align: s.align, Sequence: uint64(i + 1), Offset: uint64(w.offset),
		Length: uint32(w.length), Packets: uint32(len(w.packets)),
	}
}

// sample is a segment of five batches of both layouts, with four packets each.
func sample(align uint32) *segment {
	s := newSegment(align)
	for i := range uint64(5) {
		l := slotLayout
		if i%2 == 1 {
			l = packedLayout
		}
		durable := uint64(0)
		if i > 1 {
			durable = uint64(s.batches[i-2].offset + s.batches[i-2].length)
		}
		s.add(l, durable, testPacket(4*i, 60), testPacket(4*i+1, 485), testPacket(4*i+2, 1514), testPacket(4*i+3, 300))
	}
	return s
}

// wipe zeroes a batch from byte from on, as if that part was never written.
func (s *segment) wipe(i, from int) {
	clear(s.file[s.batches[i].offset+from:][:s.batches[i].length-from])
}

// survivors are the packets of all batches but the lost ones.
func (s *segment) survivors(lost ...int) (want []packet) {
	for i, b := range s.batches {
		if !slices.Contains(lost, i) {
			want = append(want, b.packets...)
		}
	}
	return want
}

// memFile is a File in memory that counts changes, and can fail.
type memFile struct {
	data    []byte
	steps   int // changes and flushes
	changes int
	dirty   bool  // changed since the last Sync
	failAt  int   // the step that fails, from 1; 0 is none
	readErr error // of every read after the head
}

var errInjected = errors.New("injected")

func (m *memFile) ReadAt(p []byte, off int64) (int, error) {
	if m.readErr != nil {
		return 0, m.readErr
	}
	return bytes.NewReader(m.data).ReadAt(p, off)
}

func (m *memFile) step() error {
	m.steps++
	if m.steps == m.failAt {
		return errInjected
	}
	return nil
}

func (m *memFile) change() error {
	m.changes++
	m.dirty = true
	return m.step()
}

func (m *memFile) WriteAt(p []byte, off int64) (int, error) {
	if err := m.change(); err != nil {
		return 0, err
	}
	return copy(m.data[off:off+int64(len(p))], p), nil
}

func (m *memFile) Seek(_ int64, whence int) (int64, error) {
	if whence != io.SeekEnd {
		return 0, errors.New("holes are not known here")
	}
	return int64(len(m.data)), nil
}

func (m *memFile) Truncate(size int64) error {
	if err := m.change(); err != nil {
		return err
	}
	m.data = m.data[:size]
	return nil
}

func (m *memFile) Sync() error {
	if err := m.step(); err != nil {
		return err
	}
	m.dirty = false
	return nil
}

// walked returns the packets that walk reads from a file.
func walked(t interface{ Fatal(...any) }, file []byte) (got []packet) {
	err := walk(bytes.NewReader(file), int64(len(file)), func(b Block) error {
		if p, ok := b.Packet(); ok {
			got = append(got, packet{p.Interface, p.Time, bytes.Clone(p.Data), p.OrigLen})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func samePackets(a, b []packet) bool {
	return slices.EqualFunc(a, b, func(a, b packet) bool {
		return a.iface == b.iface && a.ns == b.ns && a.orig == b.orig && bytes.Equal(a.data, b.data)
	})
}

func mustRecover(t *testing.T, m *memFile) Report {
	t.Helper()
	r, err := Recover(m, Options{})
	testenv.Must(t, err)
	if m.dirty {
		t.Error("recovery changed the file and did not flush it")
	}
	return r
}
