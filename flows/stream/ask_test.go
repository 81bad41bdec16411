package stream

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// testSenderAsk: a sender learns how far another session is, once the receiver says the same twice. The session does
// not begin, and the sender's own goes on. A receiver that is no log does not answer.
func testSenderAsk(t *testing.T, g *rig) {
	const other = 77
	answers := []uint64{40, 41, 41, 99}
	c := receiverConfig()
	c.Origins = true
	c.Next = func(id uint64, _ string) (uint64, error) { // on the worker's thread
		if id != other {
			return 1, nil
		}
		next := answers[0]
		answers = answers[1:]
		return next, nil
	}
	k := g.far.newTaker(c, 64)
	p := g.near.newSource(senderConfig(k.address))
	p.more(100)
	p.await()
	ask := func(limit time.Duration) (next uint64, err error) {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		p.ns.Do(t, func() { next, err = p.s.NextOf(ctx, other) })
		return next, err
	}
	if next, err := ask(testenv.Within(10 * time.Second)); next != 41 || err != nil {
		t.Errorf("message %d of the session is next (%v), want 41", next, err)
	}
	k.on(func() {
		if len(answers) != 1 || k.r.sessions.byID[other] != nil {
			t.Errorf("there are %d answers left, and the session is %+v", len(answers), k.r.sessions.byID[other])
		}
	})
	p.more(100)
	p.await()
	k.on(func() { k.r.config.Origins = false })
	k.on(func() { answers = []uint64{1, 1, 1, 1, 1, 1, 1, 1} })
	testenv.Wait(t, time.Minute, "a receiver to say that it is no log", func() bool {
		next, err := ask(300 * time.Millisecond) // asks again and again until then
		if err == nil {
			t.Fatalf("a receiver that is no log says %d", next)
		}
		return strings.Contains(err.Error(), "no log")
	})
}
