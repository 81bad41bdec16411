package main

import (
	"context"
	"errors"
	"io"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/selftests/harness"
)

func main() { harness.Main(run) }

// run is the program; it returns the exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stderr)
	return harness.Status("unified-tick-test", stderr, err, func() error {
		runtime.LockOSThread()
		if o.cpu >= 0 {
			var set unix.CPUSet
			set.Set(o.cpu)
			if err := unix.SchedSetaffinity(0, &set); err != nil {
				return errors.Join(errors.New("-cpu: run on that processor"), err)
			}
		}
		return o.command.work(ctx, o, stdout, stderr)
	})
}
