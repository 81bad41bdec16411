package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"

	"golang.org/x/sys/unix"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is the program; it returns the exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintln(stderr, "unified-nvme-test:", err)
		return 2
	}
	if err := work(ctx, o, stdout, stderr); err != nil {
		fmt.Fprintln(stderr, "unified-nvme-test:", err)
		return 1
	}
	return 0
}

// work runs what was asked for on a thread of its own, since a queue belongs to
// a thread.
func work(ctx context.Context, o options, out, errs io.Writer) error {
	// One processor for the thread that waits for the disk and one idle: while
	// one is idle the scheduler leaves a short system call alone instead of
	// looking after it every 20 µs.
	runtime.GOMAXPROCS(max(2, runtime.GOMAXPROCS(0)))
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if o.rw == "" {
		return selfTest(ctx, o, out)
	}
	return load(ctx, o, out, errs)
}
