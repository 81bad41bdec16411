package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/unifiedd/unifiedd/selftests/lab/vm"
)

// one runs the user's command in a guest.
func (l *lab) one(ctx context.Context) (err error) {
	g, err := l.boot(ctx, vm.Config{Host: 1, Record: l.record})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	r, err := g.Run(l.shell(l.cmd), os.Stdout)
	if err != nil {
		return err
	}
	return judge("the command", r, g.Complaints)
}

// judge returns an error for the result of a command and for the kernel's complaints. The
// complaints come first: after them no other result counts.
func judge(what string, r vm.Result, boot []string) error {
	complaints := append(append([]string(nil), boot...), r.Complaints...)
	if len(complaints) > 0 {
		return fmt.Errorf("%w while %s ran (which ended with status %d):\n%s", errKernel, what, r.Code, strings.Join(complaints, "\n"))
	}
	if r.TimedOut {
		return fmt.Errorf("%s %w: it took longer than its limit", what, errOurs)
	}
	if r.Code != 0 {
		return fmt.Errorf("%s %w, with status %d", what, errOurs, r.Code)
	}
	return nil
}
