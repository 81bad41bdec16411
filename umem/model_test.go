package umem

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestBooksAgainstModel: after random operations on books every count agrees with a list of the
// frames that each holder should have.
func TestBooksAgainstModel(t *testing.T) {
	r := openOrdinary(t, Config{Size: 2 << 20, ExtentSize: 16 << 10, Extents: 8})
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(t, r)
		t.Repeat(map[string]func(*rapid.T){
			"take":    m.take,
			"extents": m.takeExtents,
			"pass":    m.pass,
			"give":    m.give,
			"publish": func(t *rapid.T) { m.some(t).book.Publish() },
			"recall":  m.recall,
			"renew":   m.renew,
			"":        m.check,
		})
		m.close(t)
	})
}

// model has the frames that each holder should have.
type model struct {
	region  *Region
	holders []*Holder
	frames  map[*Holder][]Frame
}

func newModel(t *rapid.T, r *Region) *model {
	m := &model{region: r, frames: make(map[*Holder][]Frame)}
	for _, name := range []string{"one", "two"} {
		b := r.NewBook(name)
		for _, o := range Owners()[1:] {
			m.add(t, b, o)
		}
	}
	return m
}

func (m *model) add(t *rapid.T, b *Book, o Owner) {
	h, err := b.NewHolder(o, b.name+" "+o.String())
	if err != nil {
		t.Fatal(err)
	}
	m.holders = append(m.holders, h)
}

func (m *model) some(t *rapid.T) *Holder { return rapid.SampledFrom(m.holders).Draw(t, "holder") }

func (m *model) take(t *rapid.T) {
	h, fs := m.some(t), make([]Frame, rapid.IntRange(0, 64).Draw(t, "frames"))
	m.frames[h] = append(m.frames[h], fs[:h.Take(fs)]...)
}

func (m *model) takeExtents(t *rapid.T) {
	h, fs := m.some(t), make([]Frame, rapid.IntRange(0, 4).Draw(t, "extents"))
	m.frames[h] = append(m.frames[h], fs[:h.TakeExtents(fs)]...)
}

// remove removes some frames from a holder's list.
func (m *model) remove(t *rapid.T, h *Holder) []Frame {
	n := rapid.IntRange(0, len(m.frames[h])).Draw(t, "frames")
	fs := m.frames[h][:n:n]
	m.frames[h] = m.frames[h][n:]
	return fs
}

func (m *model) pass(t *rapid.T) {
	from, to := m.some(t), m.some(t)
	if from.book != to.book {
		t.Skip("holders of two books")
	}
	fs := m.remove(t, from)
	from.PassTo(to, fs)
	m.frames[to] = append(m.frames[to], fs...)
}

func (m *model) give(t *rapid.T) {
	h := m.some(t)
	h.Give(m.remove(t, h))
}

func (m *model) recall(t *rapid.T) {
	h := m.some(t)
	want := m.held(h)
	if got := h.Recall(); got != want {
		t.Fatalf("recalled %d frames of %s, want %d", got, h.name, want)
	}
	delete(m.frames, h)
}

// renew closes a holder that has frames, and opens one like it.
func (m *model) renew(t *rapid.T) {
	i := rapid.IntRange(0, len(m.holders)-1).Draw(t, "holder")
	h := m.holders[i]
	m.holders = append(m.holders[:i:i], m.holders[i+1:]...)
	if got, want := h.Close(), m.held(h); got != want {
		t.Fatalf("closing %s gave %d frames back, want %d", h.name, got, want)
	}
	delete(m.frames, h)
	m.add(t, h.book, h.owner)
}

func (m *model) held(h *Holder) (n int64) {
	for _, f := range m.frames[h] {
		n += m.region.units(f.Addr)
	}
	return n
}

func (m *model) check(t *rapid.T) {
	c, err := m.region.Audit()
	if err != nil {
		t.Fatal(err)
	}
	var want Count
	for _, h := range m.holders {
		want[h.owner] += m.held(h)
	}
	want[OwnerPool] = m.region.Frames() - want.Sum()
	if c != want {
		t.Fatalf("audit counts %v, want %v", c, want)
	}
	if s := m.region.Snapshot(); s.Sum() != m.region.Frames() {
		t.Fatalf("snapshot %v sums to %d of %d frames", s, s.Sum(), m.region.Frames())
	}
}

func (m *model) close(t *rapid.T) {
	for _, h := range m.holders {
		h.Give(m.frames[h])
	}
	for _, b := range append([]*Book(nil), m.region.books...) {
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSnapshotAddsUp: a snapshot adds up while several threads take, pass, publish and give frames,
// and open and close holders.
func TestSnapshotAddsUp(t *testing.T) {
	r := openOrdinary(t, Config{Size: 8 << 20, ExtentSize: 64 << 10, Extents: 16})
	var stop atomic.Bool
	var workers sync.WaitGroup
	for seed := range uint64(3) {
		b := r.NewBook("book")
		workers.Go(func() { churn(t, b, rand.New(rand.NewPCG(seed, 1)), &stop) })
	}
	taken := 0
	for end := time.Now().Add(500 * time.Millisecond); time.Now().Before(end) && !t.Failed(); taken++ {
		if c := r.Snapshot(); c.Sum() != r.Frames() || anyNegative(c) {
			t.Errorf("snapshot %d: %v sums to %d of %d frames", taken, c, c.Sum(), r.Frames())
		}
	}
	stop.Store(true)
	workers.Wait()
	if c := audit(t, r); c.Of(OwnerPool) != r.Frames() {
		t.Errorf("at the end the pool has %d of %d frames", c.Of(OwnerPool), r.Frames())
	}
	t.Logf("%d snapshots", taken)
}

func anyNegative(c Count) bool {
	for _, n := range c {
		if n < 0 {
			return true
		}
	}
	return false
}

// churn runs a worker with two devices. One of them is closed and opened again and again.
func churn(t *testing.T, b *Book, random *rand.Rand, stop *atomic.Bool) {
	worker, err1 := b.NewHolder(OwnerWorker, "worker")
	device, err2 := b.NewHolder(OwnerXDP, "device")
	if err1 != nil || err2 != nil {
		t.Error(err1, err2)
		return
	}
	fs := make([]Frame, 96)
	for !stop.Load() {
		n := worker.Take(fs[:64])
		n += worker.TakeExtents(fs[n : n+random.IntN(4)])
		worker.PassTo(device, fs[:n])
		for range random.IntN(8) {
			b.Publish()
			device.PassTo(worker, fs[:n/2])
			worker.PassTo(device, fs[:n/2])
		}
		if random.IntN(4) == 0 {
			device = renew(t, b, device)
			continue
		}
		device.PassTo(worker, fs[:n])
		worker.Give(fs[:n])
	}
	device.Close()
	worker.Close()
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

func renew(t *testing.T, b *Book, old *Holder) *Holder {
	old.Close()
	h, err := b.NewHolder(OwnerXDP, "device")
	if err != nil {
		t.Error(err)
	}
	return h
}
