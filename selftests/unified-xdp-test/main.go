package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/selftests/harness"
)

func main() { harness.Main(run) }

// run is the program; it returns the exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stderr)
	return harness.Status("unified-xdp-test", stderr, err, func() error {
		if o.mode == selfTest {
			return test(ctx, o, stdout)
		}
		return measure(ctx, o, stdout, stderr)
	})
}

// measure runs a mode until its time, its count or the context ends, and prints the result.
func measure(ctx context.Context, o options, stdout, stderr io.Writer) (err error) {
	if err := checkTakeOver(o); err != nil {
		return err
	}
	s, err := open(o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.cleanup.Close()) }()
	j, err := newJob(s)
	if err != nil {
		return err
	}
	if err := s.iface.Start(); err != nil {
		return err
	}
	fmt.Fprintf(stderr, "%s %s; Ctrl-C ends it\n", o.mode.doing(), o.iface)
	if !o.json && isTerminal(stderr) {
		defer j.watch(stderr)()
	}
	r, err := j.run(ctx)
	if err != nil {
		return err
	}
	if err := r.print(stdout, o.json); err != nil {
		return err
	}
	return r.judge(o)
}

// watch shows a live count until the returned function is called.
func (j *job) watch(w io.Writer) (stop func()) {
	end, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for last := uint64(0); ; {
			select {
			case <-end:
				return
			case <-tick.C:
			}
			now := j.moved()
			fmt.Fprintf(w, "\r%d packets, %d/s ", now, now-last)
			last = now
		}
	}()
	return func() { close(end); <-done }
}

// isTerminal reports whether w is a terminal.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
