package transfer

import (
	"context"
	"runtime"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestPiecesAllocateNothing: while pieces move, neither side allocates for each of them. Once a second both look at
// something, or record.
func TestPiecesAllocateNothing(t *testing.T) {
	testenv.NoRace(t, "it allocates by itself")
	g := small(t)
	v := g.far.receive(ReceiverConfig{Path: testenv.DiskDir(t)}, nil)
	const pieces = 384
	k := g.near.sender(SenderConfig{Path: file(t, "file", content(1, pieces<<20)), Address: v.address})
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	counted := make(chan uint64, 1)
	go func() {
		var before, after runtime.MemStats
		for k.Stats().At < 32<<20 && ctx.Err() == nil {
			sleep(longSleep)
		}
		runtime.ReadMemStats(&before)
		from := k.Stats().At
		for k.Stats().At < (pieces-16)<<20 && ctx.Err() == nil {
			sleep(longSleep)
		}
		runtime.ReadMemStats(&after)
		if moved := (k.Stats().At - from) >> 20; moved < pieces/2 {
			t.Errorf("only %d pieces were watched", moved)
		}
		counted <- after.Mallocs - before.Mallocs
	}()
	var err error
	g.near.ns.Do(t, func() { err = k.Run(ctx) })
	g.near.check(k.Close())
	testenv.Must(t, err)
	if n := <-counted; n > pieces/2 {
		t.Errorf("%d allocations", n)
	}
}
