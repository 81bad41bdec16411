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
	if signal.Ignored(syscall.SIGHUP) {
		return untilOneOf(parent, syscall.SIGINT, syscall.SIGTERM)
	}
	return untilOneOf(parent, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
}

// untilOneOf is untilSignal for these signals.
func untilOneOf(parent context.Context, those ...os.Signal) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancel(parent)
	signals, stopped := make(chan os.Signal, 2), make(chan struct{})
	signal.Notify(signals, those...)
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

// statisticsAsked are the signals at which statistics are printed, as tcpdump does.
func statisticsAsked() <-chan os.Signal {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGUSR1)
	return asked
}

// hangups are the signals at which a daemon reads its configuration again, unless they are
// ignored. Those that come while it does count once.
func hangups() (signals chan os.Signal, stop func()) {
	signals = make(chan os.Signal, 1)
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(signals, syscall.SIGHUP)
	}
	return signals, func() { signal.Stop(signals) }
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
