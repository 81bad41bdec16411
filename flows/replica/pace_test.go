package replica

import (
	"testing"
	"time"
)

// run lets a leader append at a rate, and a link send copies, in rounds of a length of time. It returns how many copies
// the link may have sent.
func (p *pace) run(b *bucket, from, perSecond float64, each, span time.Duration, start time.Time) (last, copies float64) {
	last = from
	for at := each; at <= span; at += each {
		now := start.Add(at)
		last += perSecond * each.Seconds()
		p.look(uint64(last), now)
		b.fill(p, now)
		for n := 0; n < 10000 && !b.empty(); n++ {
			b.take()
			copies++
		}
	}
	return last, copies
}

// TestCopiesBesideClients: a link may send a third more copies than clients append records, and a least number.
// There is no limit when nobody appends, nor before anybody did.
func TestCopiesBesideClients(t *testing.T) {
	start := time.Unix(1000, 0)
	for _, c := range []struct {
		perSecond, least, most float64
		each                   time.Duration
	}{
		{90000, 116000, 121000, time.Millisecond},
		{90000, 115000, 121000, 15 * time.Millisecond}, // the worker is often away
		{90000, 30000, 60000, 50 * time.Millisecond},   // and for longer than it may make up for
		{1000, 19500, 20500, time.Millisecond},
	} {
		p, b := pace{}, bucket{}
		p.begin(7)
		last, _ := p.run(&b, 7, c.perSecond, c.each, 3*time.Second, start)
		_, copies := p.run(&b, last, c.perSecond, c.each, 10*time.Second, start.Add(3*time.Second))
		if copies < 10*c.least || copies > 10*c.most {
			t.Errorf("beside %v records a second in rounds of %v there are %v copies a second, want %v to %v", c.perSecond, c.each, copies/10, c.least, c.most)
		}
	}
	p, b := pace{}, bucket{}
	p.begin(7)
	p.run(&b, 7, 0, time.Millisecond, time.Second, start)
	if b.empty() || b.limit != 0 {
		t.Errorf("nobody appends, and the limit is %v", b.limit)
	}
	last, _ := p.run(&b, 7, 1000, time.Millisecond, time.Second, start.Add(time.Second))
	if b.limit == 0 {
		t.Error("clients append, and there is no limit")
	}
	p.run(&b, last, 0, time.Millisecond, quiet+2*paceWindow, start.Add(2*time.Second))
	if b.empty() || b.limit != 0 {
		t.Errorf("nobody appends any more, and the limit is %v", b.limit)
	}
	p.run(&b, last, 1000, time.Millisecond, time.Second, start.Add(10*time.Second))
	if p.begin(99); p.limit(copyShare, start.Add(11*time.Second)) != 0 {
		t.Error("there is a limit in an epoch in which nobody has appended")
	}
}

// TestCopiesBringNearer: a follower that does not come nearer gets more and more, until it does.
func TestCopiesBringNearer(t *testing.T) {
	var b bucket
	now := time.Unix(1000, 0)
	b.look(1000, now)
	for i := range 4 {
		before := b.share
		now = now.Add(looksEvery)
		if b.look(1000+uint64(i), now); b.share <= max(before, copyShare) {
			t.Errorf("after %v without progress the share is %v, and was %v", looksEvery, b.share, before)
		}
		if b.look(2000, now.Add(looksEvery/2)); b.distance != 1000+uint64(i) {
			t.Error("it looks too early")
		}
	}
	if b.look(900, now.Add(looksEvery)); b.share != copyShare {
		t.Errorf("the follower comes nearer, and the share stays %v", b.share)
	}
}

// TestPaceAllocates: neither the measurement nor the limit allocates.
func TestPaceAllocates(t *testing.T) {
	p, b, now, last := pace{}, bucket{}, time.Unix(1000, 0), uint64(0)
	if n := testing.AllocsPerRun(1000, func() {
		now, last = now.Add(time.Millisecond), last+50
		p.look(last, now)
		b.fill(&p, now)
		for !b.empty() && b.limit > 0 {
			b.take()
		}
		b.look(100, now)
	}); n > 0 {
		t.Errorf("a round allocates %v times", n)
	}
}
