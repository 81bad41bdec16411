package replica

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
)

// TestRecords: a follower gets every record of the leader in order, the leader learns how far it is,
// and the follower what is committed. The leader gets each frame back.
func TestRecords(t *testing.T) {
	a, b := newMembers(t, 1024, 900)
	a.on(func() { a.links.Begin(1) })
	at, to := follow(a, b, 1)
	const records = 5000
	a.on(func() { a.offer = records })
	a.eventually("the follower has all records", func() bool { return a.safe[2].Received == records })
	equal(t, a, b)
	a.on(func() { a.links.Commit(records - 10) })
	b.eventually("the follower knows what is committed", func() bool { return b.links.Committed() == records-10 })
	b.eventually("the leader is heard", func() bool { return time.Since(time.Unix(0, b.links.Heard())) < time.Second })
	a.eventually("the leader knows what is written and durable", func() bool {
		h := a.safe[2]
		return h.Written == records && h.Durable == records/2
	})
	a.eventually("frames come back", func() bool { return a.links.held.first == records+1 })
	before := b.links.Heard()
	b.eventually("the leader is heard though nothing happens", func() bool { return b.links.Heard() > before })
	b.must(b.links.Finish(b.do, to, errors.New("it was enough")))
	a.eventually("the leader notices the end of the link", func() bool {
		select {
		case <-at.Ended():
			return true
		default:
			a.offer++ // a broken link is noticed when something is sent
			return false
		}
	})
	a.must(a.links.Finish(a.do, at, nil))
}

// TestEarlyCommits: the leader says that it lives as soon as there is a link. The follower's worker may learn later that the
// handshake is complete, when the leader has said all that it may say without an answer. None of that counts before, and
// the leader goes on after it.
func TestEarlyCommits(t *testing.T) {
	a, b := newMembers(t, 1024, 900)
	a.on(func() { a.links.Begin(1) })
	answered := make(chan *Link, 1)
	go func() { answered <- a.answer() }()
	var at *Link
	var attached int64
	calls := 0
	late := func(f func() error) error {
		if calls++; calls == 2 { // the handshake is complete
			attached = b.links.Heard()
			at = <-answered
			a.eventually("the leader has said all that it may", func() bool { return at.count == controls-2 })
			b.eventually("the follower has got it", func() bool { return b.links.incoming.echo+b.links.Stats().Stale == controls-2 })
			if b.links.Heard() != attached {
				t.Error("a leader counts as heard before the follower knows who it is")
			}
		}
		return b.do(f)
	}
	to, _, err := b.links.Dial(t.Context(), late, Want{Group: "orders", Self: b.number, Member: a.number, Address: a.listener.Addr().String(), Epoch: uint64(a.epoch), Next: 1, Of: uint64(a.epoch)})
	b.must(err)
	b.eventually("the leader is heard", func() bool { return b.links.Heard() > attached })
	a.on(func() { a.offer = 100 })
	a.eventually("the follower has all records", func() bool { return a.safe[2].Received == 100 })
	a.on(func() { a.links.Commit(90) })
	b.eventually("the follower knows what is committed", func() bool { return b.links.Committed() == 90 })
	if n := b.links.Stats().Stale; n > 0 {
		t.Errorf("%d messages of the link count as of one that had ended", n)
	}
	b.must(b.links.Finish(b.do, to, nil))
	a.must(a.links.Finish(a.do, at, nil))
}

// TestEarlyProgress: what a follower says before the leader's worker knows that the handshake is complete counts.
func TestEarlyProgress(t *testing.T) {
	a, b := newMembers(t, 1024, 900)
	a.on(func() { a.links.Begin(1) })
	dialed := make(chan *Link, 1)
	go func() {
		defer close(dialed)
		to, _, err := b.links.Dial(t.Context(), b.do, Want{Group: "orders", Self: b.number, Member: a.number, Address: a.listener.Addr().String(), Epoch: uint64(a.epoch), Next: 1, Of: uint64(a.epoch)})
		if err != nil {
			t.Error(err)
			return
		}
		dialed <- to
	}()
	q, err := a.listener.Accept(t.Context())
	a.must(err)
	h, err := protocol.ParseHello(q.Remote().Hello)
	a.must(err)
	calls := 0
	late := func(f func() error) error {
		if calls++; calls == 2 {
			a.eventually("the follower has said how much it can take", func() bool {
				return slices.ContainsFunc(a.links.slots, func(k *Link) bool { return k != nil && k.limit > 0 })
			})
		}
		return a.do(f)
	}
	at, _, err := a.links.Answer(late, 0, q, &h, a.number, false, 0)
	a.must(err)
	if to := <-dialed; to != nil {
		b.must(b.links.Finish(b.do, to, nil))
	}
	a.must(a.links.Finish(a.do, at, nil))
}

// TestEarlyRecord: a leader that sends records before the follower has permitted any loses its link. A record that was
// dropped without a word would be missing for as long as no other one follows.
func TestEarlyRecord(t *testing.T) {
	a, b := newMembers(t, 1024, 900)
	a.on(func() { a.links.Begin(1) })
	answered := make(chan *Link, 1)
	go func() { answered <- a.answer() }()
	var at *Link
	calls := 0
	late := func(f func() error) error {
		if calls++; calls == 2 {
			at = <-answered
			a.on(func() { at.limit, a.offer = 10, 1 })
			b.eventually("the link ends", func() bool { return b.links.Stats().Refused == 1 })
		}
		return b.do(f)
	}
	to, _, err := b.links.Dial(t.Context(), late, Want{Group: "orders", Self: b.number, Member: a.number, Address: a.listener.Addr().String(), Epoch: uint64(a.epoch), Next: 1, Of: uint64(a.epoch)})
	b.must(err)
	<-to.Ended()
	taken := uint64(0)
	b.on(func() { taken = b.taken })
	if !errors.Is(to.Cause(), protocol.BeyondCredit) || taken > 0 {
		t.Errorf("the link has ended: %v; %d records were taken", to.Cause(), taken)
	}
	b.must(b.links.Finish(b.do, to, nil))
	a.must(a.links.Finish(a.do, at, nil))
}

// TestCatchUp: a follower that lacks records which the leader does not hold any more gets them from
// the segments, and goes on with the newest ones, while the leader appends.
func TestCatchUp(t *testing.T) {
	a, b := newMembers(t, 1024, 900)
	a.on(func() { a.links.Begin(1); a.offer = 3000 })
	a.eventually("there are old records", func() bool { return a.links.held.first == 3001 })
	at, to := follow(a, b, 1)
	a.on(func() { a.offer = 20000 })
	read := make(chan error, 1)
	go func() {
		c := at.CatchUp()
		left, err := c.Run(t.Context(), &segments{member: a, next: c.From(), missing: 3}, a.region, 64)
		a.on(func() { a.links.Return(c, left) })
		read <- err
	}()
	a.eventually("the follower has all records", func() bool { return a.safe[2].Received == 23000 })
	testenv.Check(t, <-read)
	equal(t, a, b)
	if n := a.links.Stats().CopiedBytes; n == 0 {
		t.Error("the records from the segments are not counted as copied")
	}
	b.must(b.links.Finish(b.do, to, nil))
	a.must(a.links.Finish(a.do, at, nil))
	a.eventually("the frames for copies come back", func() bool { return a.links.copies.Len() == 64 })
}

// TestSmallRegion: links that find too few frames are not opened, and keep nothing.
func TestSmallRegion(t *testing.T) {
	a, _ := newMembers(t, 1024, 900)
	c := a.links.config
	c.Copies = int(a.region.Frames())
	a.on(func() {
		if _, err := Open(c); err == nil || !strings.Contains(err.Error(), "open a larger region") {
			t.Errorf("links with too many copies: %v", err)
		}
	})
}

// TestResting: when a leader's links end, the frames of its records are free only after the links are
// detached. Until then the device may read them.
func TestResting(t *testing.T) {
	a, b := newMembers(t, 1024, 900)
	a.on(func() { a.links.Begin(1); a.keep = true })
	at, to := follow(a, b, 1)
	a.on(func() { a.offer = 20 })
	a.eventually("the follower has all records", func() bool { return a.safe[2].Received == 20 })
	a.on(func() {
		free := a.free.Len()
		a.must(a.links.EndAll(errEpoch))
		a.links.Begin(21)
		for _, f := range a.made {
			a.links.Returned().Push(f) // the disk is done
		}
		a.links.Sort()
		if rest := a.links.held.resting.Len(); rest != 20 || a.free.Len() != free {
			t.Errorf("%d frames rest, and %d are free that were not", rest, a.free.Len()-free)
		}
	})
	a.must(a.links.Finish(a.do, at, nil))
	a.on(func() {
		if rest := a.links.held.resting.Len(); rest > 0 {
			t.Errorf("%d frames rest for ever", rest)
		}
	})
	b.must(b.links.Finish(b.do, to, nil))
}

// TestFence: a link that was decided on before all links were ended is not made, on either side. Records
// over it would reach a log that has been reported without them.
func TestFence(t *testing.T) {
	a, b := newMembers(t, 1024, 900)
	end := func() { b.must(b.links.EndAll(errEpoch)) }
	b.on(end)
	answered := make(chan error)
	var fence uint64
	answer := func() {
		q, err := a.listener.Accept(t.Context())
		a.must(err)
		h, err := protocol.ParseHello(q.Remote().Hello)
		a.must(err)
		_, _, err = a.links.Answer(a.do, 0, q, &h, a.number, false, fence)
		_ = q.Refuse("fenced") // fails if it was answered
		answered <- err
	}
	want := Want{Group: "orders", Self: b.number, Member: a.number, Address: a.listener.Addr().String(), Epoch: uint64(a.epoch), Next: 1}
	if _, _, err := b.links.Dial(t.Context(), b.do, want); !errors.Is(err, errFenced) {
		t.Errorf("a link from before the fence: %v", err)
	}
	a.on(func() { fence = a.links.Fence(); a.must(a.links.EndAll(errEpoch)) })
	b.on(func() { want.Fence = b.links.Fence() })
	go answer()
	if _, _, err := b.links.Dial(t.Context(), b.do, want); err == nil {
		t.Error("the leader has served a link from before its fence")
	}
	if err := <-answered; !errors.Is(err, errFenced) {
		t.Errorf("the leader: %v", err)
	}
}

// TestBehind: a follower that takes nothing loses its link, and the leader gets its frames back.
func TestBehind(t *testing.T) {
	a, b := newMembers(t, 1024, 200)
	a.on(func() { a.links.Begin(1) })
	at, to := follow(a, b, 1)
	b.on(func() { time.Sleep(time.Millisecond); b.lag = 200 * time.Millisecond })
	a.on(func() { a.offer = 3000 })
	a.eventually("the link ends", func() bool {
		select {
		case <-at.Ended():
			return true
		default:
			return false
		}
	})
	if !errors.Is(at.Cause(), errBehind) {
		t.Error(at.Cause())
	}
	a.must(a.links.Finish(a.do, at, nil))
	a.eventually("the leader goes on", func() bool { return a.offer == 0 && a.links.held.first == 3001 })
	b.on(func() { b.lag = 0 })
	b.must(b.links.Finish(b.do, to, nil))
	equal(t, a, b)
}

// TestRefusals: a record that does not follow, of a later epoch or with a wrong checksum ends the link,
// and nothing of it is taken.
func TestRefusals(t *testing.T) {
	a, b := newMembers(t, 1024, 900)
	for _, c := range []struct {
		name   string
		change func(record []byte)
		want   protocol.Reason
	}{
		{"a wrong position", func(r []byte) { protocol.SetRecord(r, 9, 0, a.epoch) }, protocol.BadSequence},
		{"a later epoch", func(r []byte) { protocol.SetRecord(r, 3, 0, a.epoch+1) }, protocol.BadSequence},
		{"an earlier epoch", func(r []byte) { protocol.SetRecord(r, 3, 0, a.epoch-1) }, protocol.BadSequence},
		{"a changed payload", func(r []byte) { r[len(r)-1] ^= 1 }, protocol.BadPayload},
		{"a changed header", func(r []byte) { r[20] ^= 1 }, protocol.BadHeader},
		{"a credit of a follower", func(r []byte) { protocol.PutHave(r, &protocol.Have{Epoch: uint64(a.epoch)}) }, protocol.BadKind},
		{"a commit of another epoch", func(r []byte) { protocol.PutCommit(r, &protocol.Commit{Epoch: 1, Count: 1}) }, protocol.BadLength},
	} {
		a.on(func() { a.links.Begin(1); a.log = nil })
		b.on(func() { b.log = nil })
		at, to := follow(a, b, 1)
		a.on(func() { a.offer = 2 })
		a.eventually("two records arrive", func() bool { return a.safe[2].Received == 2 })
		a.on(func() {
			var f [1]umem.Frame
			a.free.Pop(f[:])
			start, _ := a.region.Start(f[0])
			record := makeRecord(3, a.epoch)
			f[0].Addr, f[0].Len = start+64, uint32(len(record))
			copy(a.region.Bytes(f[0]), record)
			c.change(a.region.Bytes(f[0]))
			a.links.Offer(f[0])
			a.links.Returned().Push(f[0])
		})
		b.eventually(c.name+" ends the link", func() bool {
			select {
			case <-to.Ended():
				return true
			default:
				return false
			}
		})
		if !errors.Is(to.Cause(), c.want) {
			t.Errorf("%s: %v, want %v", c.name, to.Cause(), c.want)
		}
		if n := len(b.log); n != 2 {
			t.Errorf("%s: the follower has %d records", c.name, n)
		}
		b.must(b.links.Finish(b.do, to, nil))
		a.must(a.links.Finish(a.do, at, nil))
		a.on(func() { delete(a.safe, 2) })
	}
}

// TestNothingIsAllocated: sending records, receiving them, and telling what is written and committed does
// not allocate, on either side.
func TestNothingIsAllocated(t *testing.T) {
	a, b := newMembers(t, 1024, 900)
	a.on(func() { a.links.Begin(1) })
	b.on(func() { b.forget = true })
	at, to := follow(a, b, 1)
	const runs = 500
	records := [runs + 2][]byte{}
	for i := range records {
		records[i] = makeRecord(uint64(i)+1, a.epoch)
	}
	received := uint64(0)
	progress := func(_ uint32, h protocol.Have) { received = h.Received }
	a.on(func() {
		position := uint64(0)
		var f [1]umem.Frame
		if n := testing.AllocsPerRun(runs, func() {
			if !a.links.Room() || !a.free.Pop(f[:]) {
				t.Fatal("no room")
			}
			start, _ := a.region.Start(f[0])
			f[0].Addr, f[0].Len, f[0].Options = start+64, uint32(len(records[position])), 0
			copy(a.region.Bytes(f[0]), records[position])
			position++
			a.links.Offer(f[0])
			a.links.Returned().Push(f[0])
			for deadline := time.Now().Add(testenv.Within(time.Second)); received < position; time.Sleep(20 * time.Microsecond) {
				a.links.Recv(a.batch[:])
				a.links.Progress(progress)
				a.links.Commit(received)
				a.links.Supply()
				if a.links.Poll(time.Now()) != nil || time.Now().After(deadline) {
					t.Fatal("a record does not arrive")
				}
			}
		}); n > 0 {
			t.Errorf("%v allocations for each record", n)
		}
	})
	b.must(b.links.Finish(b.do, to, nil))
	a.must(a.links.Finish(a.do, at, nil))
}
