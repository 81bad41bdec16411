package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/unifiedd/unifiedd/selftests/lab/archive"
	"github.com/unifiedd/unifiedd/selftests/lab/kit"
	"github.com/unifiedd/unifiedd/selftests/lab/vm"
	"github.com/unifiedd/unifiedd/selftests/lab/wire"
)

// lab has the parts of guests.
type lab struct {
	options
	*kit.Kit
	dir string // the directory in which commands run
}

// open gets emulator, kernel and first process.
func open(ctx context.Context, o options) (*lab, error) {
	l := &lab{options: o}
	if o.update {
		return l, update(ctx)
	}
	var err error
	if l.dir, err = os.Getwd(); err != nil {
		return nil, fmt.Errorf("find the working directory: %w", err)
	}
	l.Kit, err = kit.Open(ctx, o.line, os.Stderr)
	return l, err
}

// update fetches everything again.
func update(ctx context.Context) error {
	store, err := archive.OpenStore(os.Stderr)
	if err != nil {
		return err
	}
	store.Refresh = true
	e, err := store.Emulator(ctx)
	if err != nil {
		return err
	}
	fmt.Println("lab:", e.Version)
	for _, line := range archive.Lines() {
		k, err := store.Kernel(ctx, line)
		if err != nil {
			return err
		}
		fmt.Println("lab: kernel", k.Version)
	}
	return nil
}

// boot boots a guest with the directories that commands need.
func (l *lab) boot(ctx context.Context, c vm.Config) (*vm.Guest, error) {
	c.Nodes, c.Append = l.nodes, l.append
	c.Shares = append(c.Shares, l.dir)
	if c.Record != "" {
		c.Shares = append(c.Shares, c.Record)
	}
	return l.Boot(ctx, c)
}

// command returns a program with the environment of every command in the lab: the line of kernels,
// and the settings of the tests of this process.
func (l *lab) command(args ...string) wire.Command {
	env := []string{"UNIFIEDD_REQUIRE=1"}
	for _, setting := range os.Environ() {
		if strings.HasPrefix(setting, "UNIFIEDD_") || strings.HasPrefix(setting, "CI=") {
			env = append(env, setting)
		}
	}
	return wire.Command{Args: args, Dir: l.dir, Limit: l.limit, Env: append(env, "UNIFIEDD_LAB_KERNEL="+l.Kernel.Line.Name)}
}

// shell returns a command of the user.
func (l *lab) shell(text string) wire.Command { return l.command("/bin/bash", "-c", text) }
