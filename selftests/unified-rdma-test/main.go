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
	"runtime/debug"

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
		fmt.Fprintln(stderr, "unified-rdma-test:", err)
		return 2
	}
	if err := work(ctx, o, stdout); err != nil {
		fmt.Fprintln(stderr, "unified-rdma-test:", err)
		return 1
	}
	return 0
}

// work does what was asked for on a thread of its own. The little that is allocated is not
// worth a collection, whose threads would take processors from the spinning ones.
func work(ctx context.Context, o options, out io.Writer) error {
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(256 << 20)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	switch {
	case o.peer == pingpongPeer:
		return o.pingpong(ctx, out)
	case o.peer != "":
		return o.perftest(ctx, out)
	case o.server():
		return serve(ctx, o, out)
	}
	return ask(ctx, o, out)
}
