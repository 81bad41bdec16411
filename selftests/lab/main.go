package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/unifiedd/unifiedd/selftests/lab/vm"
)

// Exit statuses.
const (
	exitOurs   = 1
	exitUsage  = 2
	exitKernel = 3
	exitStart  = 4
	exitSignal = 130
)

var (
	errUsage  = errors.New("wrong options")
	errKernel = errors.New("the guest's kernel complained")
	errOurs   = errors.New("failed in the guest")
	errSignal = errors.New("interrupted")
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	err := work(ctx, os.Args[1:])
	if ctx.Err() != nil {
		err = errSignal // whatever other error it caused
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "lab:", err)
	}
	stop()
	os.Exit(exitCode(err))
}

func work(ctx context.Context, args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	l, err := open(ctx, o)
	if err != nil || o.update {
		return err
	}
	switch {
	case o.cmd2 != "":
		return l.two(ctx)
	case o.cmd != "":
		return l.one(ctx)
	}
	return l.tests(ctx)
}

func exitCode(err error) int {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errSignal):
		return exitSignal
	case errors.Is(err, errUsage):
		return exitUsage
	case errors.Is(err, errKernel), errors.Is(err, vm.ErrKernel), errors.Is(err, vm.ErrHung), errors.Is(err, vm.ErrLost):
		return exitKernel
	case errors.Is(err, errOurs):
		return exitOurs
	}
	return exitStart
}
