package journal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/ring"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// live writes a log while a reader reads it. It writes batches in any order, a few at once. It
// prepares each segment in advance, renames it, completes it and, if keep is not 0, removes it
// later.
type live struct {
	t      *testing.T
	prefix string
	keep   int
	total  uint64
	number int
}

const liveSegment = 64 << 10

func (l *live) run() error {
	r := newRun(2, 1)
	for r.next <= l.total {
		if err := l.segment(r); err != nil {
			return err
		}
	}
	return nil
}

func (l *live) segment(r *run) error {
	l.number++
	m := r.file(l.t)
	prepared := fmt.Sprintf("%s/.%s-%06d.next", filepath.Dir(l.prefix), filepath.Base(l.prefix), l.number)
	f, err := os.Create(prepared)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := errors.Join(f.Truncate(liveSegment), write(f, m.raw, 0)); err != nil {
		return err
	}
	var pending []func() error
	durable := uint64(0)
	for i := 0; r.next <= l.total && m.here() < liveSegment/2; i++ {
		at := m.here()
		r.batch(m, min(1+i%5, int(l.total+1-r.next)), durable)
		raw := m.raw[at:len(m.raw):len(m.raw)]
		pending = append(pending, func() error { return write(f, raw, int64(at)) })
		if len(pending) == 4 { // all writes them in reverse order
			if err := all(pending); err != nil {
				return err
			}
			pending, durable = nil, m.here()
		}
		if i == 2 {
			if err := os.Rename(prepared, segmentPath(l.prefix, l.number)); err != nil {
				return err
			}
		}
	}
	at := m.here()
	m.end()
	if err := errors.Join(all(pending), write(f, m.raw[at:], int64(at)), f.Truncate(int64(m.here()))); err != nil {
		return err
	}
	if old := l.number - l.keep; l.keep > 0 && old > 0 {
		return os.Remove(segmentPath(l.prefix, old))
	}
	return nil
}

func write(f *os.File, b []byte, at int64) error {
	_, err := f.WriteAt(b, at)
	return err
}

func all(pending []func() error) error {
	for i := len(pending) - 1; i >= 0; i-- {
		if err := pending[i](); err != nil {
			return err
		}
		time.Sleep(100 * time.Microsecond)
	}
	return nil
}

// follow reads up to a position and returns the gaps that the reader reported.
func follow(t *testing.T, path string, last uint64) (gaps []*Gap) {
	t.Helper()
	l, err := Open(path)
	testenv.Must(t, err)
	r := l.Reader(1)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	for next := uint64(1); next <= last; next++ {
		rec, err := r.Wait(ctx)
		if g, ok := errors.AsType[*Gap](err); ok {
			gaps = append(gaps, g)
			next += g.Records - 1
			continue
		}
		if err != nil {
			t.Fatalf("record %d: %v", next, err)
		}
		if check(t, &rec); rec.Position != next {
			t.Fatalf("record %d where %d should be", rec.Position, next)
		}
	}
	testenv.Must(t, errors.Join(r.Close(), l.Close()))
	return gaps
}

// TestFollow: a reader that reads a log while it is written gets every record.
func TestFollow(t *testing.T) {
	w := &live{t: t, prefix: filepath.Join(t.TempDir(), "wal"), total: 800}
	done := make(chan error, 1)
	go func() { done <- w.run() }()
	if gaps := follow(t, w.prefix, w.total); len(gaps) > 0 {
		t.Errorf("%v", gaps)
	}
	testenv.Check(t, <-done)
	expect(t, readFrom(t, w.prefix, 0), 1, w.total)
}

// TestFollowPruned: if the writer removes segments before they are read, the reader reports gaps,
// and returns every other record.
func TestFollowPruned(t *testing.T) {
	w := &live{t: t, prefix: filepath.Join(t.TempDir(), "wal"), total: 800, keep: 2}
	done := make(chan error, 1)
	go func() { done <- w.run() }()
	for _, g := range follow(t, w.prefix, w.total) {
		if !errors.Is(g, errRemoved) && !errors.Is(g, ErrMissing) {
			t.Errorf("%v", g)
		}
	}
	testenv.Check(t, <-done)
}

// TestFollowRing: a writer overtakes a reader on a ring. The reader reports gaps, and returns every
// other record.
func TestFollowRing(t *testing.T) {
	f, geometry := ringFile(t)
	const segments = 12
	r, done := newRun(7, 1), make(chan error, 1)
	go func() {
		for g := uint64(1); g <= segments; g++ {
			m := r.segment(t, geometry.SegmentID(g), true, ring.Base(1))
			m.packets += r.next - 1
			for range 10 {
				r.batch(m, 3, m.here()/2)
			}
			raw := m.end().raw
			for at := 0; at < len(raw); at += 8 * align {
				if _, err := geometry.Slot(f, g).WriteAt(raw[at:min(at+8*align, len(raw))], int64(at)); err != nil {
					done <- err
					return
				}
				time.Sleep(50 * time.Microsecond)
			}
		}
		done <- nil
	}()
	for _, g := range follow(t, f.Name(), segments*30) {
		if !errors.Is(g, errRemoved) && !errors.Is(g, ErrMissing) {
			t.Errorf("%v", g)
		}
	}
	testenv.Check(t, <-done)
}

// TestWaitEnds: if the context of Wait ends, Wait returns its cause.
func TestWaitEnds(t *testing.T) {
	l, err := Open(filepath.Join(t.TempDir(), "wal"))
	testenv.Must(t, err)
	defer l.Close()
	enough := errors.New("enough")
	ctx, cancel := context.WithTimeoutCause(context.Background(), 20*time.Millisecond, enough)
	defer cancel()
	if _, err := l.Reader(0).Wait(ctx); !errors.Is(err, enough) {
		t.Errorf("%v", err)
	}
}

// TestFollowAnotherRun: a run prepares a segment and does not use it, and a later run reuses its
// place. A reader that knows the old head reads the new run, and the segments after it.
func TestFollowAnotherRun(t *testing.T) {
	f, geometry := ringFile(t)
	first := newRun(2, 1)
	m := first.segment(t, geometry.SegmentID(1), true, ring.Base(1))
	first.batch(m, 3, 0)
	slot(t, f, geometry, 1, m)
	slot(t, f, geometry, 2, first.segment(t, geometry.SegmentID(2), true, ring.Base(2)))
	l, err := Open(f.Name())
	testenv.Must(t, err)
	defer l.Close()
	r := l.Reader(0)
	defer r.Close()
	expect(t, readOn(t, r), 1, 3)
	second := newRun(4, 4)
	for g := uint64(2); g <= 3; g++ {
		m := second.segment(t, geometry.SegmentID(g), true, ring.Base(2))
		m.packets += second.next - second.start
		second.batch(m, 5, m.here()/2)
		slot(t, f, geometry, g, m.end())
	}
	slot(t, f, geometry, 4, second.segment(t, geometry.SegmentID(4), true, ring.Base(2)))
	expect(t, readOn(t, r), 4, 13)
}
