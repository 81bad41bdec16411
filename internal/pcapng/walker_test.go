package pcapng

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// walkAll returns the sequences of a walker's batches.
func walkAll(t *testing.T, next func() (Batch, []byte, error)) (sequences []uint64) {
	t.Helper()
	for {
		b, data, err := next()
		if err == io.EOF {
			return sequences
		}
		if err != nil || len(data) != int(b.Length) {
			t.Fatalf("batch %d of %d bytes: %v", b.Sequence, len(data), err)
		}
		sequences = append(sequences, b.Sequence)
	}
}

func newWalker(t *testing.T, f io.ReaderAt, size int) *Walker {
	t.Helper()
	w, err := NewWalker(f, int64(size), false)
	testenv.Must(t, err)
	return w
}

// TestWalkWhileWritten: batches are written out of order. The walker returns them in order, up to the first
// missing one.
func TestWalkWhileWritten(t *testing.T) {
	s := sample(512)
	whole := bytes.Clone(s.file)
	clear(s.file[s.batches[0].offset:])
	show := func(i int) {
		b := s.batches[i]
		copy(s.file[b.offset:], whole[b.offset:b.offset+b.length])
	}
	w := newWalker(t, bytes.NewReader(s.file), len(s.file))
	for _, step := range []struct {
		show int
		want int // batches given
	}{{1, 0}, {0, 2}, {3, 0}, {4, 0}, {2, 3}} {
		show(step.show)
		if got := walkAll(t, w.Next); len(got) != step.want {
			t.Fatalf("with batch %d: %v", step.show, got)
		}
	}
	if w.Place() != int64(len(s.file)) {
		t.Errorf("at %d of %d", w.Place(), len(s.file))
	}
}

func TestWalkOverHole(t *testing.T) {
	s := sample(512)
	s.file[s.batches[2].offset] ^= 1
	f := bytes.NewReader(s.file)
	w := newWalker(t, f, len(s.file))
	if got := walkAll(t, w.Next); len(got) != 2 {
		t.Fatalf("%v in front of the hole", got)
	}
	for range 2 {
		b, _, err := w.Skip()
		if err != nil || b.Sequence != 4 {
			t.Fatalf("behind the hole: %+v, %v", b, err)
		}
		w.Again()
	}
	if got := walkAll(t, w.Skip); len(got) != 2 {
		t.Errorf("%v behind the hole", got)
	}
	if got := walkAll(t, newWalker(t, f, s.batches[1].offset+1).Next); len(got) != 1 {
		t.Errorf("%v of a file that is cut", got)
	}
}

func TestWalkRepeats(t *testing.T) {
	s := sample(512)
	w := newWalker(t, bytes.NewReader(s.file), s.batches[1].offset)
	if got := walkAll(t, w.Next); len(got) != 1 {
		t.Fatal(got)
	}
	w.Grow(int64(len(s.file)))
	for range 3 {
		if b, _, err := w.Next(); err != nil || b.Sequence != 2 {
			t.Fatalf("%+v, %v", b, err)
		}
		w.Again()
	}
	if got := walkAll(t, w.Next); len(got) != 4 {
		t.Fatal(got)
	}
}

// TestWalkDurable: Durable uses batches with packets, at once or after a hole, and the writer's end mark.
func TestWalkDurable(t *testing.T) {
	for _, mended := range []bool{false, true} {
		walkDurable(t, mended)
	}
}

func walkDurable(t *testing.T, mended bool) {
	s := newSegment(512)
	for i := range 4 {
		durable := uint64(len(s.file))
		if i == 2 {
			durable = 0
		}
		s.add(packedLayout, durable, packet{data: make([]byte, 60), orig: 60})
	}
	s.add(packedLayout, uint64(len(s.file)))
	last := s.batch(4)
	last.Durable, last.FirstPacket, last.Mended = last.Offset, s.next, mended
	PutBatchHeader(s.file[last.Offset:], &last)
	if b, k, err := parseMark(s.file[last.Offset:]); err != nil || k != kindBatch || b != last {
		t.Errorf("the last batch reads %+v, %v, %v", b, k, err)
	}
	s.file[s.batches[2].offset] ^= 1
	w := newWalker(t, bytes.NewReader(s.file), len(s.file))
	for i := range 4 {
		if got, err := w.Durable(int64(s.batches[i].offset) - 1); !got || err != nil {
			t.Errorf("up to batch %d: %v, %v", i, got, err)
		}
		if got, err := w.Durable(int64(s.batches[i].offset)); got != (i < 3 || !mended) || err != nil {
			t.Errorf("behind the beginning of batch %d: %v, %v", i, got, err)
		}
	}
	if got := walkAll(t, w.Next); len(got) != 2 {
		t.Errorf("then %v", got)
	}
	next, place := w.Completed()
	if !mended && (next != s.next || place != int64(last.Offset)) || mended && place != 0 {
		t.Errorf("completed in front of packet %d at %d", next, place)
	}
}

// TestMendedMarks: parseMark accepts the flag for a recovered segment only in a batch or an end
// mark.
func TestMendedMarks(t *testing.T) {
	b := Batch{Align: 512, Length: 512, Mended: true}
	for k := kindHead; k <= kindEnd+1; k++ {
		raw := make([]byte, 512)
		putMark(raw, &b, k)
		if _, _, err := parseMark(raw); (err == nil) != (k == kindBatch || k == kindEnd) {
			t.Errorf("kind %d: %v", k, err)
		}
	}
}

// TestWalkReplaced: the walker reports that another segment was written to the slot.
func TestWalkReplaced(t *testing.T) {
	s := sample(512)
	w, err := NewWalker(bytes.NewReader(s.file), int64(len(s.file)), true)
	testenv.Must(t, err)
	s.file[16] ^= 1
	if err := w.same(); !errors.Is(err, ErrReplaced) {
		t.Errorf("%v", err)
	}
}

func TestHeadInterface(t *testing.T) {
	s := sample(512)
	head, err := ReadHead(bytes.NewReader(s.file), int64(len(s.file)))
	testenv.Must(t, err)
	for i, want := range testInterfaces {
		if got := head.Interface(i); got != want {
			t.Errorf("interface %d is %+v, not %+v", i, got, want)
		}
	}
	if got := head.Comment(); got != testSection.Comment {
		t.Errorf("the comment is %q, not %q", got, testSection.Comment)
	}
}
