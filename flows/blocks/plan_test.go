package blocks

import (
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
)

// anyPlan draws the plan of a possible server.
func anyPlan(t *rapid.T) *plan {
	p := &plan{clients: rapid.IntRange(1, 5).Draw(t, "clients"), window: 2, depth: rapid.IntRange(1, 64).Draw(t, "depth"), keep: rapid.Bool().Draw(t, "keep"), control: 4096}
	p.align = 1 << rapid.IntRange(0, 13).Draw(t, "align")
	p.size = p.align * rapid.Uint64Range(1, 1<<20).Draw(t, "blocks")
	p.transfer = p.align + rapid.Uint64Range(0, 1<<21).Draw(t, "transfer")
	if f := uint64(2048) << rapid.IntRange(0, 1).Draw(t, "frame"); f >= p.align {
		p.frame = f
	}
	if rapid.Bool().Draw(t, "extents") || p.frame == 0 {
		p.extent = max(p.align, 1<<rapid.IntRange(12, 20).Draw(t, "extent"))
	}
	p.share(Config{Cache: rapid.Uint64Range(0, 1<<24).Draw(t, "cache")})
	return p
}

// TestCut: a valid request is divided into whole blocks of the target without a gap. It needs no
// more buffers than a client's reserve.
func TestCut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := anyPlan(t)
		q := protocol.Request{Offset: rapid.Uint64Range(0, p.size).Draw(t, "offset") &^ (p.align - 1)}
		q.Length = uint32(rapid.Uint64Range(1, p.transfer).Draw(t, "length") &^ (p.align - 1))
		if q.Length == 0 || p.check(&q, Range{}) != protocol.None {
			return
		}
		c := p.cut(q.Offset, uint64(q.Length))
		size := []uint64{p.frame, p.extent}[c.cache]
		if c.n > p.caches[c.cache].reserve || c.n < 1 || c.n > p.most {
			t.Fatalf("%+v: %d buffers, and a client is sure of %d", c, c.n, p.caches[c.cache].reserve)
		}
		next := q.Offset
		for k := range c.n {
			at, length := c.piece(k)
			if at > next || k > 0 && at != next || at+length <= next || length > size || length == 0 || (at|length)&(p.align-1) != 0 || at+length > p.size {
				t.Fatalf("%+v: piece %d is %d bytes from %d, the last ended at %d", c, k, length, at, next)
			}
			if p.keep && c.cache == frameCache && at%size != 0 {
				t.Fatalf("%+v: piece %d from %d is found by no other request", c, k, at)
			}
			next = at + length
		}
		if end := q.Offset + uint64(q.Length); next < end || next-end >= size {
			t.Fatalf("%+v ends at %d, the request at %d", c, next, end)
		}
	})
}

// TestShare: every client can always get its reserve, whatever the other clients hold.
func TestShare(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		clients, reserve := rapid.IntRange(1, 6).Draw(t, "clients"), rapid.IntRange(0, 5).Draw(t, "reserve")
		s := newShare(cachePlan{buffers: clients*reserve + rapid.IntRange(0, 10).Draw(t, "more"), reserve: reserve}, clients)
		held := make([]int, clients)
		for range 100 {
			c := rapid.IntRange(0, clients-1).Draw(t, "client")
			if n := rapid.IntRange(0, held[c]).Draw(t, "given back"); n > 0 {
				s.give(c, n)
				held[c] -= n
			}
			n := rapid.IntRange(0, max(reserve, 1)).Draw(t, "wanted")
			sum, owed := n, 0
			for i, h := range held {
				if sum += h; i != c {
					owed += max(0, reserve-h)
				}
			}
			owed += max(0, reserve-held[c]-n)
			got := s.take(c, n)
			if got != (sum+owed <= s.total) {
				t.Fatalf("client %d of %v wants %d of %d: %v", c, held, n, s.total, got)
			}
			if !got && held[c]+n <= reserve {
				t.Fatalf("client %d of %v wants %d of what it is sure of", c, held, n)
			}
			if got {
				held[c] += n
			}
		}
	})
}

// TestShelf: a cache finds every entry that it has not forgotten, and never reuses a buffer in use.
func TestShelf(t *testing.T) {
	r, err := umem.Open(umem.Config{Size: 2 << 20, Pages: umem.Ordinary})
	testenv.Must(t, err)
	b := r.NewBook("test")
	h, err := b.NewHolder(umem.OwnerWorker, "test")
	testenv.Must(t, err)
	t.Cleanup(func() { h.Close(); testenv.Must(t, b.Close()); testenv.Must(t, r.Close()) })
	frames := make([]umem.Frame, 8)
	h.Take(frames)
	random := rand.New(rand.NewPCG(1, 1))
	s := bufferCache{size: 4096, keep: true, aligned: true}
	s.fill(frames, h)
	have := make(map[uint64]int32) // entries that find must find, by offset
	used := make(map[int32]uint64)
	for range 20000 {
		at := uint64(random.IntN(20)) * 4096
		switch i := s.find(at); {
		case random.IntN(50) == 0:
			n := uint64(random.IntN(5)) * 4096
			s.invalidate(at, n)
			for o := range have {
				if o < at+n && o+4096 > at {
					delete(have, o)
				}
			}
		case i != none:
			if s.buffers[i].at != at || have[at] != i {
				t.Fatalf("found %+v at %d", s.buffers[i], at)
			}
			s.buffers[i].recent = true
		case have[at] != 0 && s.buffers[have[at]].found && s.buffers[have[at]].at == at:
			t.Fatalf("what is there at %d is not found", at)
		case len(used) < len(frames):
			i = s.take()
			if _, is := used[i]; is {
				t.Fatalf("buffer %d is given away, and in use", i)
			}
			s.buffers[i].at, s.buffers[i].length, s.buffers[i].users = at, 4096, 1
			s.list(i)
			have[at], used[i] = i, at
		}
		for i := range used {
			if random.IntN(3) == 0 {
				delete(used, i)
				if s.buffers[i].users = 0; !s.buffers[i].found {
					s.discard(i)
				}
			}
			break
		}
	}
}

// TestRange: a range contains only requests between its ends.
func TestRange(t *testing.T) {
	for _, c := range []struct {
		r         Range
		offset, n uint64
		want      bool
	}{
		{Range{}, 0, 1, true}, {Range{}, 1 << 63, 1 << 62, true}, {Range{Offset: 10}, 9, 5, false}, {Range{Offset: 10}, 10, 5, true},
		{Range{10, 5}, 10, 5, true}, {Range{10, 5}, 11, 5, false}, {Range{10, 5}, 15, 1, false}, {Range{10, 5}, 1 << 62, 5, false}, {Range{10, 5}, 10, 1 << 62, false},
	} {
		if got := c.r.contains(c.offset, c.n); got != c.want {
			t.Errorf("%+v contains %d bytes from %d: %v", c.r, c.n, c.offset, got)
		}
	}
}
