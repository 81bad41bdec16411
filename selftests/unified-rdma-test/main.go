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

// work runs the test. It allocates too little for a garbage collection, whose threads would take
// processors from the spinning ones. The goroutine is not locked to its thread: it would then
// change threads at each yield (see link.yield).
//
// On a single processor GOMAXPROCS is 1. With 2 the goroutine would wake another thread at each
// yield, and the two would alternate. Where timer slack is not allowed, 2 is better: with 1, a
// call of libibverbs of more than some 20 µs would lose the P and wake another thread.
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
	case o.server():
		return serve(ctx, o, out)
	}
	return ask(ctx, o, out)
}
