package main

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
)

// TestSlowBytes: awaitByte succeeds if each byte arrives within replyTimeout, even if all together
// take longer. It fails if no byte arrives.
func TestSlowBytes(t *testing.T) {
	const replyTimeout = 2 * time.Second
	region, err := umem.Open(umem.Config{Size: 2 << 20, Pages: umem.Ordinary})
	testenv.Must(t, err)
	l := &link{session: &session{region: region, options: options{replyTimeout: replyTimeout}}, job: job{Size: 2}, ctx: t.Context()}
	word, shift := wordAtEnd(l.bytes(l.in, 0))
	for n := range uint32(3) {
		time.AfterFunc(replyTimeout*4/10, func() { atomic.StoreUint32(word, (n+1)<<shift) })
		testenv.Mustf(t, l.awaitByte(byte(n+1)), "byte %d, within the replyTimeout", n+1)
	}
	l.options.replyTimeout = 50 * time.Millisecond
	if err := l.awaitByte(0); err == nil {
		t.Error("a byte came that nobody sent")
	}
	testenv.Check(t, region.Close())
}

// TestEndsWhileAnswered: a test that is told to end does so, even if it never waits for an answer.
func TestEndsWhileAnswered(t *testing.T) {
	reason := errors.New("enough")
	ctx, end := context.WithCancelCause(t.Context())
	l := &link{session: &session{}, ctx: ctx}
	for range 100 {
		if _, err := l.answered(0); err != nil {
			t.Fatal(err)
		}
	}
	end(reason)
	var err error
	for begin := time.Now(); err == nil && time.Since(begin) < testenv.Within(time.Second); {
		_, err = l.answered(0)
	}
	if !errors.Is(err, reason) {
		t.Errorf("answers are taken on: %v", err)
	}
}
