package order

import (
	"encoding/binary"
	"io"
	"maps"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// hits has a rule that makes an order of a message that begins with A: its counter in 8 bytes, and the message's next 600
// bytes.
func hits() []config.OrderRule {
	return []config.OrderRule{{
		Name: "hit", When: []config.Condition{{Is: "A"}},
		Order: []config.OrderPart{{Counter: config.CounterBig, Bytes: 8}, {Copy: new(1), Bytes: 600}},
	}}
}

// message gives the sink a message, which it must take at once. It reports whether an order has left.
func (r *rig) message(b []byte) (left bool) {
	r.put(b)
	before, now := r.sink.taken, time.Now()
	if !r.sink.Write(&r.batch, now) || r.batch.Len != 0 || r.sink.Blocked() {
		r.t.Fatal("the sink is blocked")
	}
	r.sink.Kick()
	if r.free.Len() != 1 {
		r.t.Fatalf("%d frames are free", r.free.Len())
	}
	r.free.Drop(1, 1)
	return r.sink.taken > before
}

// TestRulesLate: an order that cannot leave at once is refused, and holds no message up. The numbers of those that leave
// have no gaps.
func TestRulesLate(t *testing.T) {
	testenv.Root(t)
	p := testenv.NewPair(t, testenv.PairOptions{})
	r := newRig(t, &p.A, &p.B, options{window: 4096, rules: hits()})
	c := r.exchange.accept()
	hit := append([]byte("A"), make([]byte, 600)...)
	left, late := uint64(0), uint64(0)
	for begun := time.Now(); late < 100; {
		if r.message(hit) {
			left++
		} else {
			late++
		}
		if r.round(); time.Since(begun) > testenv.Within(20*time.Second) {
			t.Fatalf("%d orders have left, %d were late", left, late)
		}
	}
	heard := make(chan uint64, 1)
	go func() { // the numbers, from 5 on
		var b [608]byte
		n := uint64(5)
		for ; ; n++ {
			if _, err := io.ReadFull(c, b[:]); err != nil || binary.BigEndian.Uint64(b[:]) != n {
				break
			}
		}
		heard <- n - 5
	}()
	r.await("room", func() bool {
		ok := r.message(hit)
		if ok {
			left++
		} else {
			late++
		}
		return ok
	})
	r.await("acknowledgements", func() bool { return r.sink.conn.Unacknowledged() == 0 })
	s := r.status()
	r.close()
	if n := <-heard; n != left {
		t.Errorf("the exchange has %d orders, and %d have left", n, left)
	}
	o := s.Orders
	t.Logf("%d orders have left, %d were late: kernel %v, waits %v", left, late, o.Kernel, o.Waits)
	if o.Rules.Matched != left+late || o.Rules.Rules[0].Left != left || s.Dropped["too_late"] != late || total(s.Dropped) != late || total(o.Waits) != late || o.Segments+total(o.Kernel) != left {
		t.Errorf("%+v, %+v, %v", o, o.Rules, s.Dropped)
	}
}

// TestRulesSession: limits are for logins and heartbeats, too. What they refuse is counted, and said again.
func TestRulesSession(t *testing.T) {
	testenv.Root(t)
	p := testenv.NewPair(t, testenv.PairOptions{})
	r := newRig(t, &p.A, &p.B, options{rules: hits(), limits: config.OrderLimits{Rate: 10, Burst: 1}})
	c := r.exchange.accept()
	one := &r.sink.rules.session
	one.login, one.heartbeat, one.every = []byte("login"), []byte("beat"), 10*time.Millisecond
	one.begin(time.Now())
	var b [13]byte
	read := make(chan error, 1)
	go func() { _, err := io.ReadFull(c, b[:]); read <- err }()
	r.await("beats", func() bool { return len(read) > 0 })
	if err := <-read; err != nil || string(b[:]) != "loginbeatbeat" {
		t.Errorf("%q, %v", b, err)
	}
	s := r.status().Orders.Rules
	if maps.DeleteFunc(s.Refused, func(why string, _ uint64) bool { return why == "over_rate" }); total(s.Refused) != 0 {
		t.Errorf("%+v", s)
	}
	if s = r.status().Orders.Rules; !s.LoggedIn || s.Heartbeats != 2 || s.Refused["over_rate"] < 5 {
		t.Errorf("%+v", s)
	}
	r.env.Halt.Stop()
	before := total(s.Refused)
	for end := time.Now().Add(150 * time.Millisecond); time.Now().Before(end); {
		r.round()
	}
	if s := r.status().Orders.Rules; s.Heartbeats != 2 || total(s.Refused) != before {
		t.Errorf("with the kill switch on: %+v", s)
	}
}

// TestRulesHotPath: a message allocates nothing, whatever becomes of it.
func TestRulesHotPath(t *testing.T) {
	testenv.Root(t)
	p := testenv.NewPair(t, testenv.PairOptions{})
	r := newRig(t, &p.A, &p.B, options{rules: hits(), limits: config.OrderLimits{Size: 1000, Price: &config.PriceBand{Offset: 8, Bits: 64, Max: 7}}})
	go io.Copy(io.Discard, r.exchange.accept())
	hit := append([]byte("A"), make([]byte, 600)...)
	high := append([]byte("A\xff"), make([]byte, 599)...)
	order := func() {
		for !r.message(hit) { // it is late
			r.round()
		}
	}
	for range 200 {
		order()
	}
	if a := testenv.AllocsPerRun(t, 500, order); a >= 1 {
		t.Errorf("an order allocates %v times", a)
	}
	for _, c := range []struct {
		name    string
		message []byte
	}{{"above the limit", high}, {"for no rule", []byte("B")}, {"too short", hit[:600]}} {
		left := false
		if a := testenv.AllocsPerRun(t, 500, func() { left = r.message(c.message) || left; r.round() }); a >= 1 || left {
			t.Errorf("%s: allocates %v times; has left: %v", c.name, a, left)
		}
	}
	r.env.Halt.Stop()
	if a := testenv.AllocsPerRun(t, 500, func() { r.message(hit) }); a >= 1 {
		t.Errorf("an order that is held allocates %v times", a)
	}
	if s := r.status(); s.Orders.Segments < 100 || s.Dropped["price_outside"] == 0 || s.Dropped["orders_stopped"] < 500 {
		t.Errorf("%+v, %v", s.Orders, s.Dropped)
	}
}
