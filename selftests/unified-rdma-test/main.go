package main

import (
	"context"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/unifiedd/unifiedd/selftests/harness"
)

func main() { harness.Main(run) }

// run is the program; it returns the exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stderr)
	return harness.Status("unified-rdma-test", stderr, err, func() error { return work(ctx, o, stdout) })
}

// work does what was asked for. The little that is allocated is not worth a collection, whose
// threads would take processors from the spinning ones. The goroutine is not bound to its thread: it would
// change threads each time it gives way (see link.giveWay).
//
// On a single processor there is one place for threads to run Go code. A second would let the goroutine wake another thread
// each time it gives way, for nothing, and both would take turns there. Where timers cannot be late it is the smaller evil:
// were there one place, a call of libibverbs that takes more than some 20 µs would cost it, and wake another thread to have it.
func work(ctx context.Context, o options, out io.Writer) error {
	if !unhurried() {
		runtime.GOMAXPROCS(max(2, runtime.GOMAXPROCS(0)))
	}
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(256 << 20)
	if o.peer != "" && o.server() {
		if err := o.tryOpen(o.job.room()); err != nil {
			return err
		}
	}
	switch {
	case o.peer == pingpongPeer:
		return o.pingpong(ctx, out)
	case o.peer == rpingPeer:
		return o.rping(ctx, out)
	case o.peer != "":
		return o.perftest(ctx, out)
	case o.server():
		return serve(ctx, o, out)
	}
	return ask(ctx, o, out)
}
