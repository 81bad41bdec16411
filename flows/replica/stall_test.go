package replica

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/journal"
)

// stuck reads a member's log, and finds no record from a position on.
type stuck struct {
	segments
	at uint64
}

func (s *stuck) Next() (journal.Record, error) { return s.Poll() }

func (s *stuck) Poll() (journal.Record, error) {
	if s.next >= s.at {
		return journal.Record{}, io.EOF
	}
	return s.segments.Poll()
}

// hung waits for a disk.
type hung struct {
	segments
	until chan struct{}
}

func (h *hung) Next() (journal.Record, error) { return h.Poll() }

func (h *hung) Poll() (journal.Record, error) {
	<-h.until
	return h.segments.Poll()
}

// over reports whether a link has ended.
func over(k *Link) bool {
	select {
	case <-k.Ended():
		return true
	default:
		return false
	}
}

// TestStalled: a link that catches up and sends nothing is ended, though the follower confirms the heartbeats. What it
// says of itself tells why. All frames come back.
func TestStalled(t *testing.T) {
	a, b := newMembers(t, 1024, 900)
	a.on(func() { a.links.stallTime = 300 * time.Millisecond; a.links.Begin(1); a.offer = 200 })
	a.eventually("there are old records", func() bool { return a.links.held.first == 201 })
	at, to := follow(a, b, 1)
	done := a.catchUpFrom(at, &stuck{segments{member: a, next: 1}, 101})
	a.eventually("the link ends", func() bool { return over(at) })
	if err := at.Cause(); !errors.Is(err, errStalled) || !strings.Contains(err.Error(), "from 101 on, of 200; the worker takes over at 201;") {
		t.Errorf("the link has ended: %v", err)
	}
	a.must(a.links.Finish(a.do, at, nil))
	a.must(<-done)
	a.on(func() {
		if n, lost := a.links.Stats().Stalled, 64-a.links.copies.Len(); n != 1 || lost != 0 || a.links.catching != 0 {
			t.Errorf("%d links were stalled, %d catch up, and %d frames for copies are lost", n, a.links.catching, lost)
		}
	})
	b.must(b.links.Finish(b.do, to, nil))
}

// TestStallTime: the time counts while a link sends nothing and has frames, and its reader waits for nothing that the link
// cannot change. Of the time for which the worker was away little counts.
func TestStallTime(t *testing.T) {
	c := newCatchUp(7)
	for i, at := range []struct {
		next         uint64
		lent         int
		waits, ended bool
		window, want time.Duration
	}{
		{7, 64, true, false, paceWindow, 0},
		{7, 64, true, false, paceWindow, paceWindow},
		{7, 64, false, false, paceWindow, paceWindow}, // it waits for the disk
		{7, 64, false, true, paceWindow, 2 * paceWindow},
		{7, 0, true, false, paceWindow, 2 * paceWindow}, // other links have all frames
		{7, 1, true, false, time.Hour, 4 * paceWindow},
		{8, 1, true, false, paceWindow, 0},
		{8, 1, true, false, paceWindow, paceWindow},
	} {
		c.lent, c.ended = at.lent, at.ended
		c.waits.Store(at.waits)
		if got := c.look(at.next, at.window); got != at.want {
			t.Errorf("look %d: stalled for %v, want %v", i+1, got, at.want)
		}
	}
}

// TestNotStalled: a link is not ended while it waits for the disk, nor while its follower has all records.
func TestNotStalled(t *testing.T) {
	a, b := newMembers(t, 1024, 900)
	const limit = 300 * time.Millisecond
	a.on(func() { a.links.stallTime = limit; a.links.Begin(1); a.offer = 200 })
	a.eventually("there are old records", func() bool { return a.links.held.first == 201 })
	at, to := follow(a, b, 1)
	disk := &hung{segments{member: a, next: 1}, make(chan struct{})}
	done := a.catchUpFrom(at, disk)
	time.Sleep(2 * limit)
	close(disk.until)
	a.eventually("the follower has all records", func() bool { return a.safe[2].Received == 200 || over(at) })
	time.Sleep(2 * limit)
	if over(at) {
		t.Errorf("the link has ended: %v", at.Cause())
	}
	b.must(b.links.Finish(b.do, to, nil))
	a.must(a.links.Finish(a.do, at, nil))
	a.must(<-done)
}

// TestStalledFollower: a follower whose link was ended because it got no copies gets another link, and all records.
func TestStalledFollower(t *testing.T) {
	all := newGroup(t)
	first := leader(t, all, nil)
	epoch := first.driver.State().Epoch
	behind := all[first.number%3]
	behind.eventually("it follows", func() bool { return behind.acked >= 1 })
	first.on(func() { first.links.stallTime = suspect })
	reads := func(r *segments) Records {
		if first.links.Stats().Stalled == 0 {
			return &stuck{*r, 1001}
		}
		return r
	}
	first.reads.Store(&reads)
	behind.ns.SetDown(t)
	first.on(func() { first.offer = 3000 })
	first.eventually("the others have all records", func() bool { return first.acked >= 3001 })
	first.eventually("its link has ended", func() bool { return first.links.HeardFrom()[behind.number].IsZero() })
	behind.ns.SetUp(t)
	for _, m := range all {
		m.eventually("all have all records", func() bool { return m.acked >= 3001 })
		equal(t, first, m)
	}
	if n := first.links.Stats().Stalled; n != 1 {
		t.Errorf("%d links were stalled", n)
	}
	if s := first.driver.State(); s.Epoch != epoch || s.Leader != first.number {
		t.Errorf("member %d leads epoch %d, and before member %d epoch %d", s.Leader, s.Epoch, first.number, epoch)
	}
}
