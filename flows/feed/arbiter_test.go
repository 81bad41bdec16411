package feed

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

var night, morning = Session([]byte("NIGHT00001")), Session([]byte("MORNING002"))

// text is the message with a number.
func text(s Session, n uint64) []byte { return fmt.Appendf(nil, "%s %d%*s", s, n, int(n%50), "") }

// packet makes a packet of count messages from first on.
func packet(s Session, first uint64, count int) []byte {
	b := binary.BigEndian.AppendUint64(append([]byte(nil), s[:]...), first)
	b = binary.BigEndian.AppendUint16(b, uint16(count))
	if count == endOfSession {
		return b
	}
	for i := range count {
		m := text(s, first+uint64(i))
		b = append(binary.BigEndian.AppendUint16(b, uint16(len(m))), m...)
	}
	return b
}

// rig collects what an arbiter gives out.
type rig struct {
	*Arbiter
	got []string
	now time.Duration
}

func newRig(t testing.TB, lines, held int) *rig {
	t.Helper()
	a, err := New(Config{Lines: lines, Server: lines == 3, Held: held, Longest: 1472, Gap: 10 * time.Millisecond, Ask: 2 * time.Millisecond})
	testenv.Must(t, err)
	return &rig{Arbiter: a}
}

func (r *rig) take() {
	for m, ok := r.Next(); ok; m, ok = r.Next() {
		r.got = append(r.got, string(bytes.TrimRight(m, " ")))
	}
}

func (r *rig) receive(line int, p []byte) { r.Receive(line, p); r.take() }

// pass lets time pass.
func (r *rig) pass(d time.Duration) (first uint64, n uint16) {
	r.now += d
	first, n = r.Tick(r.now)
	r.take()
	return first, n
}

func (r *rig) want(t *testing.T, s Session, numbers ...uint64) {
	t.Helper()
	var want []string
	for _, n := range numbers {
		want = append(want, string(bytes.TrimRight(text(s, n), " ")))
	}
	if !slices.Equal(r.got, want) {
		t.Errorf("it gives out %q, want %q", r.got, want)
	}
	r.got = nil
}

// TestFirstWins: the first copy of each message wins, whichever line has it, also of packets that overlap.
func TestFirstWins(t *testing.T) {
	r := newRig(t, 2, 4)
	r.receive(0, packet(night, 1, 2))
	r.receive(1, packet(night, 1, 3))
	r.receive(0, packet(night, 3, 1))
	r.receive(1, packet(night, 4, 1))
	r.want(t, night, 1, 2, 3, 4)
	s := r.Stats()
	if s.Lines[0].Wins != 2 || s.Lines[0].Duplicates != 1 || s.Lines[1].Wins != 2 || s.Lines[1].Duplicates != 2 || s.Lost != 0 || s.Session != "NIGHT00001" {
		t.Errorf("it counts %+v", s)
	}
}

// TestGap: messages behind a gap wait for the other line, then for the server, and then the gap is declared.
func TestGap(t *testing.T) {
	r := newRig(t, 3, 4)
	r.receive(0, packet(night, 1, 1))
	r.receive(0, packet(night, 4, 2))
	r.receive(0, packet(night, 8, 1))
	r.want(t, night, 1)
	r.receive(1, packet(night, 2, 2))
	r.want(t, night, 2, 3, 4, 5)
	if _, n := r.pass(0); n != 0 {
		t.Error("it asks at once")
	}
	if d, open := r.Wait(r.now); !open || d != 2*time.Millisecond {
		t.Errorf("the next step is in %v, %v", d, open)
	}
	if first, n := r.pass(2 * time.Millisecond); first != 6 || n != 2 {
		t.Errorf("it asks for %d from %d on", n, first)
	}
	if _, n := r.pass(time.Millisecond); n != 0 {
		t.Error("it asks twice")
	}
	r.receive(2, packet(night, 6, 2))
	r.want(t, night, 6, 7, 8)
	r.receive(0, packet(night, 12, 0)) // a heartbeat
	r.pass(0)
	r.receive(1, packet(night, 10, 1))
	if first, n := r.pass(2 * time.Millisecond); first != 9 || n != 1 {
		t.Errorf("it asks for %d from %d on", n, first)
	}
	r.pass(8 * time.Millisecond)
	r.want(t, night, 10)
	r.pass(0)
	r.pass(10 * time.Millisecond)
	if s := r.Stats(); s.Lost != 2 || s.Gaps != 2 || s.Lines[2].Wins != 2 || s.Requests != 2 {
		t.Errorf("it counts %+v", s)
	}
	r.receive(0, packet(night, 9, 4))
	r.want(t, night, 12)
	r.pass(0)
	if _, open := r.Wait(r.now); open {
		t.Error("there is still a gap")
	}
}

// TestSessions: a new session begins when the old one has been given out, with its gaps declared. Late packets of
// the old one do not count.
func TestSessions(t *testing.T) {
	r := newRig(t, 2, 4)
	r.receive(0, packet(night, 7, 1))
	r.receive(0, packet(night, 9, 1))
	r.receive(0, packet(night, 11, endOfSession))
	r.want(t, night, 7)
	r.receive(1, packet(morning, 1, 2))
	if s := r.Stats(); s.Lost != 2 || s.Gaps != 2 || s.Ends != 1 || s.Sessions != 2 || s.Session != "MORNING002" {
		t.Errorf("it counts %+v", s)
	}
	if len(r.got) != 3 || r.got[0] != "NIGHT00001 9" || r.got[2] != "MORNING002 2" {
		t.Errorf("it gives out %q", r.got)
	}
	r.got = nil
	r.receive(0, packet(night, 8, 1))
	r.receive(0, packet(morning, 1, 3))
	r.want(t, morning, 3)
	if s := r.Stats(); s.Lines[0].Refused["old_session"] != 1 {
		t.Errorf("it counts %+v", s)
	}
}

// TestFull: when as many packets as possible are held, the first gap is declared.
func TestFull(t *testing.T) {
	r := newRig(t, 1, 2)
	for _, n := range []uint64{1, 3, 5, 7} {
		r.receive(0, packet(night, n, 1))
	}
	r.want(t, night, 1, 3)
	r.receive(0, packet(night, 4, 1))
	r.want(t, night, 4, 5)
	if s := r.Stats(); s.Lines[0].Refused["no_room"] != 1 || s.Lost != 1 || s.Lines[0].Late != 1 {
		t.Errorf("it counts %+v", s)
	}
}

// TestMerged: two lines that each lose, repeat and reorder packets, and pack messages differently, give each message
// once and in order. Lost is exactly what neither had.
func TestMerged(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		const last = 400
		r := newRig(t, 2, 512)
		had := map[uint64]bool{}
		var lines [2][][]byte
		for l := range lines {
			for n := uint64(1); n <= last; {
				count := min(1+random.Uint64N(5), last+1-n)
				if n == 1 || random.IntN(100) >= 5 { // the first packet says where the session begins
					for i := range count {
						had[n+i] = true
					}
					for range 1 + random.IntN(20)/19 {
						lines[l] = append(lines[l], packet(night, n, int(count)))
					}
				}
				n += count
			}
			for i := 1; i+3 < len(lines[l]); i++ {
				if random.IntN(10) == 0 {
					lines[l][i], lines[l][i+3] = lines[l][i+3], lines[l][i]
				}
			}
		}
		for a, b := 0, 0; a+b < len(lines[0])+len(lines[1]); {
			if b == len(lines[1]) || a < len(lines[0]) && random.IntN(2) == 0 {
				r.receive(0, lines[0][a])
				a++
			} else {
				r.receive(1, lines[1][b])
				b++
			}
		}
		for range 3 * last { // each gap has its time
			r.pass(10 * time.Millisecond)
		}
		var want []uint64
		for n := uint64(1); n <= last; n++ {
			if had[n] {
				want = append(want, n)
			}
		}
		s := r.Stats()
		r.want(t, night, want...)
		missing := uint64(0)
		for n := uint64(1); n <= r.high-1; n++ {
			if !had[n] {
				missing++
			}
		}
		if s.Lost != missing || s.Given != uint64(len(want)) || s.Lines[0].Wins+s.Lines[1].Wins != s.Given {
			t.Fatalf("seed %d: it counts %+v, and %d of %d were not there", seed, s, missing, last)
		}
	}
}

// TestHostile: packets that contradict themselves give nothing, and are counted with their reasons.
func TestHostile(t *testing.T) {
	good := packet(night, 5, 3)
	change := func(at int, b ...byte) []byte {
		return append(append(slices.Clone(good[:at]), b...), good[at+len(b):]...)
	}
	for _, c := range []struct {
		p    []byte
		want Reason
	}{
		{good[:19], Short}, {nil, Short}, {good[:len(good)-1], Overrun}, {good[:21], Overrun},
		{append(slices.Clone(good), 0), Trailing}, {change(18, 0, 2), Trailing}, {change(18, 0, 4), Overrun}, {change(18, 255, 254), Overrun},
		{change(18, 0, 0), Trailing}, {change(20, 255, 255), Overrun}, {change(10, 255, 255, 255, 255, 255, 255, 255, 254), Wraps},
		{change(10, 0, 0, 0, 2), TooFar}, {append(change(18, 255, 255), 1), Trailing}, {make([]byte, 1473), TooLong},
	} {
		r := newRig(t, 1, 4)
		r.receive(0, packet(night, 1, 1))
		r.got = nil
		if c.want == TooLong {
			c.p = packet(night, 2, 300)[:]
		}
		r.receive(0, c.p)
		if s := r.Stats(); len(r.got) > 0 || s.Lines[0].Refused[c.want.String()] != 1 || s.Lost != 0 {
			t.Errorf("%.40x: gives %q, counts %+v, want %v", c.p, r.got, s.Lines[0], c.want)
		}
	}
}

// FuzzArbiter: whatever comes, messages are given out in order and no memory outside of a packet is read.
func FuzzArbiter(f *testing.F) {
	f.Add(packet(night, 1, 3), packet(night, 9, 1), packet(morning, 1, 2))
	f.Add(packet(night, 5, 1), packet(night, 3, 4), packet(night, 1, endOfSession))
	f.Fuzz(func(t *testing.T, a, b, c []byte) {
		r := newRig(t, 2, 2)
		for i, p := range [][]byte{a, b, c, a, b} {
			r.Receive(i%2, p)
			if i == 2 {
				r.Keep()
				clear(p)
			}
			for last, session, restarts := r.next, r.session, r.total.restarts.Load(); ; {
				_, ok := r.Next()
				if r.session == session && r.total.restarts.Load() == restarts && (r.next < last || ok && r.next == last) {
					t.Fatalf("message %d follows %d", r.next, last)
				}
				last, session, restarts = r.next, r.session, r.total.restarts.Load()
				if !ok {
					break
				}
			}
			r.pass(11 * time.Millisecond)
			if len(r.free)+len(r.held) > r.config.Held || r.next > r.high {
				t.Fatalf("%d free and %d held buffers; next %d, announced %d", len(r.free), len(r.held), r.next, r.high)
			}
		}
	})
}

// TestArbiterAllocates: no packet costs an allocation, in order, behind a gap, or of a new session.
func TestArbiterAllocates(t *testing.T) {
	r := newRig(t, 2, 64)
	n, s := uint64(1), night
	b := packet(s, 1, 3)
	send := func(line int, first uint64) {
		copy(b, s[:])
		binary.BigEndian.PutUint64(b[sessionLen:], first)
		r.Receive(line, b)
		for _, ok := r.Next(); ok; _, ok = r.Next() {
		}
	}
	allocs := testing.AllocsPerRun(1000, func() {
		send(0, n)
		send(1, n)
		send(0, n+6)
		r.now += time.Millisecond
		r.Tick(r.now)
		send(1, n+3)
		n += 9
		if n%5 == 0 {
			s[9]++
		}
	})
	if allocs != 0 || r.Stats().Lost != 0 || r.Stats().Sessions < 100 {
		t.Errorf("%v allocations; %+v", allocs, r.Stats())
	}
}
