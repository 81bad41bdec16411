package feed

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// restartRig is an arbiter whose lines have packets of one message, and a clock. of is the text of each message.
type restartRig struct {
	*Arbiter
	t   *testing.T
	c   *Counter // nil: MoldUDP64
	now time.Duration
	got []string
}

func newRestartRig(t *testing.T, c *Counter, lines, hold int) *restartRig {
	t.Helper()
	a, err := New(Config{Lines: lines, Held: hold, Longest: 64, Gap: 10 * time.Millisecond, Counter: c})
	if err != nil {
		t.Fatal(err)
	}
	return &restartRig{Arbiter: a, t: t, c: c}
}

// send sends messages of a life of the sender, from first on, on lines; without leaves some out.
func (r *restartRig) send(s Session, life string, first, n uint64, each time.Duration, without func(line int, n uint64) bool, lines ...int) {
	for i := range n {
		for _, l := range lines {
			if without == nil || !without(l, first+i) {
				r.one(l, s, life, first+i)
			}
		}
		r.pass(each)
	}
}

func (r *restartRig) one(line int, s Session, life string, n uint64) {
	text := fmt.Sprintf("%s %d", life, n)
	r.At(r.now)
	if r.c == nil {
		b := packet(s, n, 0)
		b[headerLen-1] = 1
		r.Receive(line, append(append(b, 0, byte(len(text))), text...))
	} else {
		r.Receive(line, append(r.c.payload(n)[:r.c.Offset+r.c.Width], text...))
	}
	r.take()
}

func (r *restartRig) take() {
	for m, ok := r.Next(); ok; m, ok = r.Next() {
		if r.c != nil {
			m = m[r.c.Offset+r.c.Width:]
		}
		r.got = append(r.got, string(m))
	}
}

// pass lets time pass, as a worker that looks every millisecond at most.
func (r *restartRig) pass(d time.Duration) {
	for end := r.now + d; r.now < end; {
		r.now = min(end, r.now+time.Millisecond)
		r.Tick(r.now)
		r.take()
	}
}

// lives wants the messages of lives, each from its first one, and nothing else.
func (r *restartRig) want(restarts uint64, lives ...string) {
	r.t.Helper()
	if !slices.Equal(r.got, lives) {
		i := 0
		for i < min(len(r.got), len(lives)) && r.got[i] == lives[i] {
			i++
		}
		r.t.Errorf("it gives out %d messages, want %d: from %d on %q", len(r.got), len(lives), i, r.got[i:min(i+5, len(r.got))])
	}
	s := r.Stats()
	if s.Restarts != restarts || s.Lost != 0 || s.Given != uint64(len(lives)) {
		r.t.Errorf("it counts %+v", s)
	}
	if len(r.free) != r.config.Held || r.restart.open {
		r.t.Errorf("%d of %d buffers are free", len(r.free), r.config.Held)
	}
}

// life is what a life of the sender sends.
func life(name string, first, n uint64) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("%s %d", name, first+i))
	}
	return all
}

// kinds are the ways in which packets are numbered.
var kinds = map[string]*Counter{"mold": nil, "2 bytes": {0, 2, false}, "4 bytes": {4, 4, true}, "8 bytes": {0, 8, false}}

// TestRestart: a sender that restarts and counts from the beginning, under the same name or none, loses no message,
// however many it had sent, and whatever each line lacks.
func TestRestart(t *testing.T) {
	seventh := func(line int, n uint64) bool { return (n%7 == 3) == (line == 0) }
	for kind, c := range kinds {
		for name, step := range map[string]struct {
			lines         []int
			before, after uint64
			pause, each   time.Duration
			without       func(int, uint64) bool
		}{
			"two lines":                     {[]int{0, 1}, 1000, 1000, 300 * time.Millisecond, 80 * time.Microsecond, nil},
			"each line lacks some":          {[]int{0, 1}, 1000, 1000, 300 * time.Millisecond, 80 * time.Microsecond, seventh},
			"one line":                      {[]int{0}, 1000, 1000, 300 * time.Millisecond, 80 * time.Microsecond, nil},
			"after few messages":            {[]int{0, 1}, 20, 1000, 300 * time.Millisecond, 10 * time.Microsecond, nil},
			"slow":                          {[]int{0, 1}, 1000, 20, time.Second, 500 * time.Millisecond, nil},
			"so fast that buffers are full": {[]int{0, 1}, 1000, 1000, 20 * time.Millisecond, time.Microsecond, nil},
			"a burst, and then nothing":     {[]int{0, 1}, 1000, 40, 20 * time.Millisecond, 0, nil},
		} {
			t.Run(kind+", "+name, func(t *testing.T) {
				r := newRestartRig(t, c, 2, 64)
				r.send(night, "old", 1, step.before, 80*time.Microsecond, step.without, step.lines...)
				r.pass(step.pause)
				r.send(night, "new", 1, step.after, step.each, step.without, step.lines...)
				r.pass(20 * time.Millisecond)
				r.want(1, append(life("old", 1, step.before), life("new", 1, step.after)...)...)
			})
		}
	}
}

// TestRestartOnOneLine: when the other line has died, the sender is believed after a second without that line.
func TestRestartOnOneLine(t *testing.T) {
	r := newRestartRig(t, kinds["4 bytes"], 2, 64)
	r.send(night, "old", 1, 200, time.Millisecond, nil, 0, 1)
	r.pass(time.Minute)
	r.send(night, "new", 1, 2, time.Millisecond, nil, 0)
	r.pass(900 * time.Millisecond)
	if len(r.got) != 200 {
		t.Errorf("%d messages", len(r.got))
	}
	r.pass(200 * time.Millisecond)
	r.want(1, append(life("old", 1, 200), life("new", 1, 2)...)...)
}

// TestNoRestart: what a network or a sender does without a restart gives no message twice.
func TestNoRestart(t *testing.T) {
	for kind, c := range kinds {
		for name, do := range map[string]func(r *restartRig){
			"the last messages again and again": func(r *restartRig) {
				for range 20 {
					r.send(night, "old", 196, 5, 0, nil, 0, 1)
					r.pass(time.Second)
				}
			},
			"one old packet": func(r *restartRig) { r.one(0, night, "old", 5); r.pass(time.Minute) },
			"a line that is late by far": func(r *restartRig) {
				r.send(night, "old", 201, 100, time.Millisecond, nil, 0)
				r.pass(time.Minute)
				r.send(night, "old", 201, 100, time.Millisecond, nil, 1)
			},
			"a path that was stuck": func(r *restartRig) { // of one line
				r.send(night, "old", 201, 100, time.Millisecond, nil, 0)
				r.send(night, "old", 301, 100, 0, nil, 0, 1)
				r.pass(20 * time.Millisecond)
				r.send(night, "old", 201, 100, 0, nil, 1)
				r.send(night, "old", 401, 1, 0, nil, 0, 1)
			},
			"a restart on one line alone": func(r *restartRig) { // its sender is another one
				for i := range uint64(5000) {
					r.one(0, night, "old", 201+i)
					r.one(1, night, "new", 1+i)
					r.pass(time.Millisecond)
				}
			},
			"everything twice, within gap": func(r *restartRig) {
				for i := range uint64(100) {
					r.send(night, "old", 201+i, 1, 0, nil, 0, 1)
					r.pass(100 * time.Microsecond)
				}
				r.send(night, "old", 201, 100, 0, nil, 0, 1)
			},
		} {
			t.Run(kind+", "+name, func(t *testing.T) {
				r := newRestartRig(t, c, 2, 64)
				r.send(night, "old", 1, 200, time.Millisecond, nil, 0, 1)
				r.pass(time.Second)
				do(r)
				r.send(night, "old", r.next&(1<<16-1), 50, time.Millisecond, nil, 0, 1)
				r.pass(time.Minute)
				n := uint64(len(r.got))
				r.want(0, life("old", 1, n)...)
				if n < 250 {
					t.Errorf("%d messages", n)
				}
			})
		}
	}
}

// TestRestartWithOldName: a sender that goes back to the session before, from the beginning or from where that was, loses
// nothing. A few late packets of that session begin nothing.
func TestRestartWithOldName(t *testing.T) {
	for name, first := range map[string]uint64{"from where it was": 201, "from the beginning": 1} {
		t.Run(name, func(t *testing.T) {
			r := newRestartRig(t, nil, 2, 64)
			r.send(night, "night", 1, 200, time.Millisecond, nil, 0, 1)
			r.send(morning, "morning", 1, 3, 0, nil, 0, 1)
			r.send(night, "night", 100, 30, 0, nil, 0, 1) // late
			r.send(morning, "morning", 4, 97, time.Millisecond, nil, 0, 1)
			r.one(0, night, "night", 200)
			r.one(1, night, "night", 199)
			r.send(morning, "morning", 101, 100, time.Millisecond, nil, 0, 1)
			if s := r.Stats(); s.Lines[0].Refused["old_session"] != 31 || s.Lines[1].Refused["old_session"] != 31 {
				t.Errorf("it counts %+v", s)
			}
			r.pass(time.Second)
			r.send(night, "restarted", first, 300, time.Millisecond, nil, 0, 1)
			r.pass(20 * time.Millisecond)
			r.want(1, slices.Concat(life("night", 1, 200), life("morning", 1, 200), life("restarted", first, 300))...)
			if s := r.Stats(); s.Sessions != 3 || s.Session != "NIGHT00001" {
				t.Errorf("it counts %+v", s)
			}
		})
	}
	t.Run("numbers", func(t *testing.T) { // far ahead, and back to where they were
		r := newRestartRig(t, kinds["4 bytes"], 2, 64)
		r.send(night, "first", 1, 200, time.Millisecond, nil, 0, 1)
		r.send(night, "far", 9_000_000, 200, time.Millisecond, nil, 0, 1)
		r.pass(time.Second)
		r.send(night, "restarted", 201, 200, time.Millisecond, nil, 0, 1)
		r.pass(20 * time.Millisecond)
		r.want(2, slices.Concat(life("first", 1, 200), life("far", 9_000_000, 200), life("restarted", 201, 200))...)
	})
}

// TestRestartAtTheEnd: what is kept when nothing more comes is given out.
func TestRestartAtTheEnd(t *testing.T) {
	r := newRestartRig(t, kinds["2 bytes"], 2, 64)
	r.send(night, "old", 1, 200, time.Millisecond, nil, 0, 1)
	r.pass(time.Second)
	r.send(night, "new", 1, 5, 0, nil, 0, 1)
	r.Finish()
	r.take()
	r.want(1, append(life("old", 1, 200), life("new", 1, 5)...)...)
}

// TestManyRestarts: a sender that restarts at any time, on two lines that lose, repeat and swap packets, and of
// which one is behind the other, gives each message once.
func TestManyRestarts(t *testing.T) {
	for seed := range uint64(100) {
		random := rand.New(rand.NewPCG(seed, 7))
		for kind, c := range kinds {
			r := newRestartRig(t, c, 2, 512)
			var want []string
			for n := range 5 {
				count, name := 40+random.Uint64N(400), fmt.Sprint("life ", n)
				behind, sent := random.Uint64N(6), [2][]uint64{}
				for l := range sent {
					for i := range count {
						if i > 1 && i < count-8 && random.IntN(20) == 0 && l == int(i%2) { // never both
							continue
						}
						for range 1 + random.IntN(20)/19 {
							sent[l] = append(sent[l], 1+i)
						}
					}
					for i := 4; i+7 < len(sent[l]); i++ {
						if random.IntN(10) == 0 {
							sent[l][i], sent[l][i+3] = sent[l][i+3], sent[l][i]
						}
					}
				}
				for i := range uint64(max(len(sent[0]), len(sent[1]))) + behind {
					if i < uint64(len(sent[0])) {
						r.one(0, night, name, sent[0][i])
					}
					if i >= behind && i-behind < uint64(len(sent[1])) {
						r.one(1, night, name, sent[1][i-behind])
					}
					r.pass(time.Duration(random.IntN(200)) * time.Microsecond)
				}
				r.pass(time.Duration(20+random.IntN(100)) * time.Millisecond)
				want = append(want, life(name, 1, count)...)
			}
			if r.want(4, want...); t.Failed() {
				t.Fatalf("%s, seed %d", kind, seed)
			}
		}
	}
}
