package replica

import (
	"errors"
	"io"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/journal"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma/roce/rocetest"
)

// sleepy reads a member's log as on a busy machine. At the end of the segments it waits for the worker's answer in vain: the
// worker hears of the end only when the reader has gone on up to a position. Then the reader gets no processor until the
// worker has said where it takes over, and the disk has later records.
type sleepy struct {
	segments
	link    *Link
	upTo    uint64
	release chan struct{} // lets the worker go on; nil: it was not held yet
}

func (s *sleepy) Next() (journal.Record, error) { return s.Poll() }

func (s *sleepy) Poll() (rec journal.Record, err error) {
	if s.release == nil {
		if rec, err = s.segments.Poll(); err == io.EOF {
			s.release = s.hold()
		}
		return rec, err
	}
	select {
	case <-s.release:
		return s.segments.Poll()
	default:
	}
	if s.next <= s.upTo {
		rec.Raw, rec.Position = s.log[s.next-1], s.next // the worker waits
		s.next++
		return rec, nil
	}
	close(s.release)
	s.eventually("the worker has said where it takes over", func() bool { return s.link.copies.joined > 0 })
	s.on(func() { s.offer = 100 })
	s.eventually("there are later records", func() bool { return s.offer == 0 })
	return s.segments.Poll()
}

// hold lets the worker append ten records, and keeps it from what the goroutine says.
func (s *sleepy) hold() (release chan struct{}) {
	begun := make(chan struct{})
	release = make(chan struct{})
	go func() {
		_ = s.do(func() error { // fails if the worker has ended: the test does, too
			for range 10 {
				s.make()
			}
			close(begun)
			<-release
			return nil
		})
	}()
	<-begun
	return release
}

// TestCatchUpReadsFurther: a goroutine that reads segments may read records behind the place where the worker takes over,
// before it learns of that place. The follower gets each record once, and the link goes on.
func TestCatchUpReadsFurther(t *testing.T) {
	const before, within = 20, 30 // the last record before the reader comes to the end, and before the worker takes over
	for name, upTo := range map[string]uint64{"records of both sides": before, "the first record that the worker sends": within} {
		t.Run(name, func(t *testing.T) {
			a, b := newMembers(t, 1024, 900)
			a.on(func() { a.links.Begin(1); a.offer = before })
			a.eventually("there are old records", func() bool { return a.links.held.first == before+1 })
			at, to := follow(a, b, 1)
			c := at.CatchUp()
			left, err := c.Run(t.Context(), &sleepy{segments: segments{member: a, next: c.From()}, link: at, upTo: upTo}, a.region, 64)
			a.on(func() { a.links.Return(c, left) })
			a.must(err)
			a.eventually("the follower has all records", func() bool { return a.safe[2].Received == within+100 })
			equal(t, a, b)
			a.on(func() { a.offer = 100 })
			a.eventually("the link goes on", func() bool { return a.safe[2].Received == within+200 })
			a.eventually("the frames for copies come back", func() bool { return at.copies == nil && a.links.copies.Len() == 64 })
			b.must(b.links.Finish(b.do, to, nil))
			a.must(a.links.Finish(a.do, at, nil))
		})
	}
}

// catchUpFrom reads segments for a link, as a Driver does.
func (m *member) catchUpFrom(k *Link, r Records) (done chan error) {
	done = make(chan error, 1)
	go func() {
		c := k.CatchUp()
		left, err := c.Run(m.Context(), r, m.region, 64)
		done <- errors.Join(err, m.do(func() error { m.links.Return(c, left); return nil }))
	}()
	return done
}

// TestCatchUpsShare: a follower that takes no copies does not keep another one from catching up. When that one has all
// records, the first may have all frames again.
func TestCatchUpsShare(t *testing.T) {
	testenv.Root(t)
	testenv.Leaks(t)
	var all []*member
	for i, e := range testenv.NewSwitch(t, 3, testenv.PairOptions{MTU: 4200}) {
		all = append(all, newMember(t, uint32(i+1), rocetest.At(e), 1024, 900))
	}
	a, b, c := all[0], all[1], all[2]
	const records = 2000
	a.on(func() { a.links.Begin(1); a.offer = records })
	a.eventually("there are old records", func() bool { return a.links.held.first == records+1 })
	first, toB := follow(a, b, 1)
	b.on(func() { b.lag = time.Second }) // it takes as many records a second as it has receives for
	slow := a.catchUpFrom(first, &segments{member: a, next: 1})
	a.eventually("one follower has all frames", func() bool { return first.copies.lent == 64 && first.sent > 0 })
	second, toC := follow(a, c, 1)
	quick := a.catchUpFrom(second, &segments{member: a, next: 1})
	a.eventually("the other one has all records", func() bool { return a.safe[3].Received == records })
	a.must(<-quick)
	a.on(func() {
		if a.safe[2].Received == records || first.copies == nil {
			t.Error("the quick follower was not before the slow one")
		}
	})
	b.on(func() { b.lag = 0 })
	a.eventually("the slow one has all records", func() bool { return a.safe[2].Received == records })
	a.must(<-slow)
	equal(t, a, b)
	equal(t, a, c)
	a.eventually("the frames for copies come back", func() bool { return a.links.copies.Len() == 64 && a.links.catching == 0 })
	for _, one := range []struct {
		m *member
		k *Link
	}{{b, toB}, {c, toC}, {a, first}, {a, second}} {
		one.m.must(one.m.links.Finish(one.m.do, one.k, nil))
	}
}
