package main

import (
	"context"
	"io"
	"runtime"

	"github.com/unifiedd/unifiedd/selftests/harness"
)

func main() { harness.Main(run) }

// run is the program; it returns the exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stderr)
	return harness.Status("unified-nvme-test", stderr, err, func() error { return work(ctx, o, stdout, stderr) })
}

// work runs on its own thread, since a queue belongs to a thread.
func work(ctx context.Context, o options, out, errs io.Writer) error {
	// One processor for the thread that waits for the disk and one idle: while one is idle, the
	// scheduler does not check short system calls every 20 µs.
	runtime.GOMAXPROCS(max(2, runtime.GOMAXPROCS(0)))
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if o.rw == "" {
		return selfTest(ctx, o, out)
	}
	return load(ctx, o, out, errs)
}
