package feed

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// plainRig collects the numbers that an arbiter of plain packets gives out.
type plainRig struct {
	*Arbiter
	counter Counter
	got     []uint64
	now     time.Duration
}

func newPlainRig(t testing.TB, c Counter, lines, held int) *plainRig {
	t.Helper()
	a, err := New(Config{Lines: lines, Held: held, Longest: 64, Gap: 10 * time.Millisecond, Counter: &c})
	testenv.Must(t, err)
	return &plainRig{Arbiter: a, counter: c}
}

// payload is the packet with a number.
func (c *Counter) payload(n uint64) []byte {
	b := make([]byte, c.Offset+c.Width, c.Offset+c.Width+2)
	var order binary.ByteOrder = binary.BigEndian
	if c.Little {
		order = binary.LittleEndian
	}
	switch c.Width {
	case 2:
		order.PutUint16(b[c.Offset:], uint16(n))
	case 4:
		order.PutUint32(b[c.Offset:], uint32(n))
	default:
		order.PutUint64(b[c.Offset:], n)
	}
	return append(b, byte(n), byte(n>>8))
}

func (r *plainRig) take() {
	for m, ok := r.Next(); ok; m, ok = r.Next() {
		n, _ := r.counter.number(m)
		if len(m) != r.counter.Offset+r.counter.Width+2 || m[len(m)-2] != byte(n) {
			n = 1 << 63 // the packet was changed
		}
		r.got = append(r.got, n)
	}
}

func (r *plainRig) receive(line int, n uint64) {
	p := r.counter.payload(n)
	r.Receive(line, p)
	if n%3 == 0 {
		r.Keep()
		clear(p)
	}
	r.take()
}

func (r *plainRig) pass(d time.Duration) {
	r.now += d
	r.Tick(r.now)
	r.take()
}

func (r *plainRig) want(t *testing.T, numbers ...uint64) {
	t.Helper()
	if !slices.Equal(r.got, numbers) {
		t.Errorf("it gives out %v, want %v", r.got, numbers)
	}
	r.got = nil
}

// TestCounterGap: plain packets have the same arbitration and gaps as messages of MoldUDP64, also where the number
// begins again.
func TestCounterGap(t *testing.T) {
	for _, c := range []Counter{{0, 2, false}, {3, 2, true}, {4, 4, false}, {0, 4, true}, {1, 8, false}, {8, 8, true}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			first := uint64(1)<<(8*c.Width) - 4 // that of the last ones
			if c.Width == 8 {
				first = 1 << 40
			}
			at := func(i uint64) uint64 {
				if n := first + i; c.Width == 8 || n < 1<<(8*c.Width) {
					return n
				}
				return first + i - 1<<(8*c.Width)
			}
			r := newPlainRig(t, c, 2, 4)
			r.receive(0, at(0))
			r.receive(1, at(0))
			r.receive(0, at(3))
			r.receive(1, at(1))
			r.want(t, at(0), at(1))
			r.receive(1, at(2))
			r.receive(1, at(3))
			r.receive(1, at(1))
			r.want(t, at(2), at(3))
			r.receive(0, at(6))
			r.pass(0)
			r.pass(10 * time.Millisecond)
			r.want(t, at(6))
			s := r.Stats()
			if s.Lost != 2 || s.Gaps != 1 || s.Sessions != 1 || s.Session != "1" || s.Lines[0].Wins != 3 || s.Lines[1].Wins != 2 || s.Lines[1].Duplicates != 3 || s.Lines[1].Late != 1 || s.Lines[0].Missing != 4 {
				t.Errorf("it counts %+v", s)
			}
			r.Receive(0, c.payload(0)[:c.Offset+c.Width-1])
			r.Receive(0, make([]byte, 65))
			if s := r.Stats(); s.Lines[0].Refused["short"] != 1 || s.Lines[0].Refused["too_long"] != 1 {
				t.Errorf("it counts %+v", s.Lines[0])
			}
		})
	}
}

// TestCounterRestart: when a sender restarts, its packets are a new session, none of which is lost. Late packets
// of the old one do not count, and a damaged number begins nothing.
func TestCounterRestart(t *testing.T) {
	const old = 30_000_000
	for name, c := range map[string]struct {
		order []uint64 // that line 0 has, line 1 has the same behind it, and then what is late
		want  []uint64
		lost  uint64
	}{
		"in order":  {[]uint64{1, 2, 3, 4}, []uint64{1, 2, 3, 4}, 0},
		"reordered": {[]uint64{2, 1, 3, 4}, []uint64{1, 2, 3, 4}, 0},
		"with loss": {[]uint64{1, 3, 4}, []uint64{1, 3, 4}, 1},
		"from 0":    {[]uint64{0, 1, 2}, []uint64{0, 1, 2}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := newPlainRig(t, Counter{0, 4, false}, 2, 8)
			r.receive(0, old)
			r.receive(1, old)
			r.receive(0, old+2)
			r.want(t, old)
			for _, n := range c.order {
				r.receive(0, n)
			}
			r.receive(1, old+1) // behind the declared gap: the session has ended
			r.receive(1, old+2)
			for _, n := range c.order {
				r.receive(1, n)
			}
			r.pass(0)
			r.pass(10 * time.Millisecond)
			r.want(t, append([]uint64{old + 2}, c.want...)...)
			s := r.Stats()
			if s.Lost != c.lost+1 || s.Sessions != 2 || s.Session != "2" || s.Lines[1].Refused["old_session"] != 2 || s.Given != uint64(len(c.want)+2) {
				t.Errorf("it counts %+v", s)
			}
			r.receive(0, 9_000_000)
			for range 100 {
				r.receive(0, r.next-base)
			}
			r.receive(0, 17_000_000) // not behind the one before
			r.Finish()
			if s := r.Stats(); s.Sessions != 2 || s.Lines[0].Refused["too_far"] != 2 || s.Lost != c.lost+1 {
				t.Errorf("it counts %+v", s)
			}
		})
	}
}

// TestCounterMerged: two lines that each lose, repeat and reorder packets, and whose sender restarts in the middle, give each
// packet once and in order. Each packet that came is accounted for.
func TestCounterMerged(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 3))
		r := newPlainRig(t, Counter{2, 4, false}, 2, 512)
		came, want := uint64(0), []uint64(nil)
		for _, first := range []uint64{4_000_000_000, 1} { // 4294967296 is where the number begins again
			const each = 300
			had := map[uint64]bool{}
			var lines [2][]uint64
			for l := range lines {
				for i := uint64(0); i < each; i++ {
					if i > 1 && i < each-4 && random.IntN(20) == 0 { // the first two say that a session begins
						continue
					}
					had[first+i] = true
					for range 1 + random.IntN(20)/19 {
						lines[l] = append(lines[l], first+i)
					}
				}
				for i := 2; i+7 < len(lines[l]); i++ {
					if random.IntN(10) == 0 {
						lines[l][i], lines[l][i+3] = lines[l][i+3], lines[l][i]
					}
				}
			}
			for a, b := 0, 0; a+b < len(lines[0])+len(lines[1]); came++ {
				if b == len(lines[1]) || a < len(lines[0]) && (a < 3 || random.IntN(2) == 0) {
					r.receive(0, lines[0][a])
					a++
				} else {
					r.receive(1, lines[1][b])
					b++
				}
			}
			for range 2 * each { // each gap has its time
				r.pass(10 * time.Millisecond)
			}
			for i := range uint64(each) {
				if had[first+i] {
					want = append(want, first+i)
				}
			}
		}
		r.want(t, want...)
		s := r.Stats()
		all := s.Lines[0].Wins + s.Lines[0].Duplicates + s.Lines[1].Wins + s.Lines[1].Duplicates
		if s.Sessions != 2 || s.Given != uint64(len(want)) || s.Lost != 600-s.Given || all != came || len(s.Lines[0].Refused)+len(s.Lines[1].Refused) > 0 {
			t.Fatalf("seed %d: it counts %+v of %d packets", seed, s, came)
		}
	}
}

// TestCounterRefused: places that no number can have are refused.
func TestCounterRefused(t *testing.T) {
	for _, c := range []Counter{{0, 3, false}, {0, 0, false}, {-1, 4, false}, {1 << 16, 4, false}} {
		if _, err := New(Config{Lines: 1, Held: 1, Longest: 64, Gap: 1, Counter: &c}); err == nil {
			t.Errorf("%+v is taken", c)
		}
	}
}

// TestCounterAllocates: no plain packet costs an allocation, also not one that begins a session.
func TestCounterAllocates(t *testing.T) {
	r := newPlainRig(t, Counter{0, 8, true}, 2, 64)
	n, b := uint64(1), r.counter.payload(0)
	send := func(line int, number uint64) {
		binary.LittleEndian.PutUint64(b, number)
		r.Receive(line, b)
		for _, ok := r.Next(); ok; _, ok = r.Next() {
		}
	}
	allocs := testing.AllocsPerRun(1000, func() {
		send(0, n)
		send(1, n)
		send(0, n+2)
		r.now += time.Millisecond
		r.Tick(r.now)
		send(1, n+1)
		if n += 3; n%7 == 0 {
			n += 1 << 30
		}
	})
	if s := r.Stats(); allocs != 0 || s.Lost != 0 || s.Sessions < 100 {
		t.Errorf("%v allocations; %+v", allocs, s)
	}
}

// FuzzCounter: whatever comes, packets are given out in order, no memory outside of a packet is read, and each packet
// is accounted for.
func FuzzCounter(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x01\x00\x02\x7f\xff\x80\x00\x00\x03"), uint8(0), uint8(0), false)
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\xfe\x00\x00\x00\x00\x00\x00\x00\x05"), uint8(8), uint8(1), true)
	f.Fuzz(func(t *testing.T, all []byte, width, offset uint8, little bool) {
		c := Counter{int(offset % 8), []int{2, 4, 8}[width%3], little}
		r := newPlainRig(t, c, 2, 2)
		came := uint64(0)
		for i := 0; len(all) > 0; i++ {
			n := min(len(all), c.Offset+c.Width-i%2)
			r.Receive(i%2, all[:n])
			all, came = all[n:], came+1
			for last, session, restarts := r.next, r.session, r.total.restarts.Load(); ; {
				_, ok := r.Next()
				if r.session == session && r.total.restarts.Load() == restarts && (r.next < last || ok && r.next == last) {
					t.Fatalf("packet %d follows %d", r.next, last)
				}
				last, session, restarts = r.next, r.session, r.total.restarts.Load()
				if !ok {
					break
				}
			}
			r.now += 11 * time.Millisecond
			r.Tick(r.now)
		}
		r.Finish()
		r.take()
		sum := uint64(0)
		for _, l := range r.Stats().Lines {
			sum += l.Wins + l.Duplicates
			for _, n := range l.Refused {
				sum += n
			}
		}
		if sum != came {
			t.Fatalf("%d packets came, and %d are accounted for: %+v", came, sum, r.Stats())
		}
	})
}
