package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// again is how long after the first signal another one means impatience:
// timeout(1) sends its signal twice at once.
const again = time.Second

// untilSignal is done at the first SIGINT, SIGTERM or SIGHUP, the last unless it is
// ignored, as nohup(1) has it. A later one ends the process: the kernel then
// detaches the program, and the next start recovers the files.
func untilSignal(parent context.Context) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancel(parent)
	signals, stopped := make(chan os.Signal, 2), make(chan struct{})
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(signals, syscall.SIGHUP)
	}
	go func() {
		if !await(signals, stopped) {
			return
		}
		cancel()
		for first := time.Now(); time.Since(first) < again; {
			if !await(signals, stopped) {
				return
			}
		}
		fmt.Fprintln(os.Stderr, "unifiedd: second signal: ending at once; the files are recovered at the next start")
		os.Exit(exitFailed)
	}()
	return ctx, func() { signal.Stop(signals); close(stopped); cancel() }
}

// await waits for a signal and reports false when none is waited for any more.
func await(signals <-chan os.Signal, stopped <-chan struct{}) bool {
	select {
	case <-signals:
		return true
	case <-stopped:
		return false
	}
}
