package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/unifiedd/unifiedd/selftests/lab/archive"
	"github.com/unifiedd/unifiedd/selftests/lab/vm"
	"github.com/unifiedd/unifiedd/selftests/lab/wire"
)

// lab has what guests are made of.
type lab struct {
	options
	kernel   archive.Kernel
	emulator archive.Emulator
	init     []byte
	dir      string // commands run in it
}

// open gets emulator, kernel and first process.
func open(ctx context.Context, o options) (*lab, error) {
	store, err := archive.OpenStore(os.Stderr)
	if err != nil {
		return nil, err
	}
	l := &lab{options: o}
	if o.update {
		return l, update(ctx, store)
	}
	if l.emulator, err = store.Emulator(ctx); err != nil {
		return nil, err
	}
	if l.kernel, err = store.Kernel(ctx, o.line); err != nil {
		return nil, err
	}
	if l.dir, err = os.Getwd(); err != nil {
		return nil, fmt.Errorf("find the working directory: %w", err)
	}
	l.init, err = buildInit(ctx)
	return l, err
}

// update fetches everything anew.
func update(ctx context.Context, store *archive.Store) error {
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

// attempts is how often a guest that came to a standstill is booted.
const attempts = 3

// boot boots a guest; one that has the end of a wire only once, since that is gone with it.
func (l *lab) boot(ctx context.Context, c vm.Config) (*vm.Guest, error) {
	c.Kernel, c.Emulator, c.Init, c.Nodes = l.kernel, l.emulator, l.init, l.nodes
	c.Shares = append(c.Shares, l.dir)
	if c.Record != "" {
		c.Shares = append(c.Shares, c.Record)
	}
	g, err := vm.Boot(ctx, c)
	for n := 1; n < attempts && errors.Is(err, vm.ErrSilent) && c.Link == nil && ctx.Err() == nil; n++ {
		fmt.Fprintln(os.Stderr, "lab: once more:", firstLine(err))
		g, err = vm.Boot(ctx, c)
	}
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(os.Stderr, "lab: a guest with Linux %s is up\n", g.Version)
	return g, nil
}

// command is a program with what every command in the lab can rely on: the line of
// kernels, and the settings of the tests that this process was given.
func (l *lab) command(args ...string) wire.Command {
	env := []string{"UNIFIEDD_REQUIRE=1"}
	for _, setting := range os.Environ() {
		if strings.HasPrefix(setting, "UNIFIEDD_") || strings.HasPrefix(setting, "CI=") {
			env = append(env, setting)
		}
	}
	return wire.Command{Args: args, Dir: l.dir, Limit: l.limit, Env: append(env, "UNIFIEDD_LAB_KERNEL="+l.kernel.Line.Name)}
}

// shell is a command of the user's.
func (l *lab) shell(text string) wire.Command { return l.command("/bin/bash", "-c", text) }

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}
