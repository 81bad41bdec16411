package kit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/unifiedd/unifiedd/selftests/lab/archive"
	"github.com/unifiedd/unifiedd/selftests/lab/vm"
)

// Kit has what guests are made of.
type Kit struct {
	Kernel   archive.Kernel
	Emulator archive.Emulator
	Init     []byte    // the first process
	Log      io.Writer // is told of what takes long, and of what had to be done again
}

// Open gets emulator and kernel, which are fetched when they are not there, and builds the
// first process.
func Open(ctx context.Context, line archive.Line, log io.Writer) (*Kit, error) {
	store, err := archive.OpenStore(log)
	if err != nil {
		return nil, err
	}
	k := &Kit{Log: log}
	if k.Emulator, err = store.Emulator(ctx); err != nil {
		return nil, err
	}
	if k.Kernel, err = store.Kernel(ctx, line); err != nil {
		return nil, err
	}
	k.Init, err = buildInit(ctx)
	return k, err
}

// Attempts is how often a guest that came to a standstill is booted.
const Attempts = 3

// Boot boots a guest of c, whose kernel, emulator and first process are the kit's. One that
// came to a standstill is booted again, unless it has the end of a wire, which is gone with it.
func (k *Kit) Boot(ctx context.Context, c vm.Config) (*vm.Guest, error) {
	c.Kernel, c.Emulator, c.Init = k.Kernel, k.Emulator, k.Init
	attempts := Attempts
	if c.Link != nil {
		attempts = 1
	}
	var g *vm.Guest
	err := k.Again(ctx, attempts, func() (err error) {
		g, err = vm.Boot(ctx, c)
		return err
	})
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(k.Log, "lab: a guest with Linux %s is up\n", g.Version)
	return g, nil
}

// Again has boot boot guests until they come to no standstill, at most so often.
func (k *Kit) Again(ctx context.Context, attempts int, boot func() error) error {
	err := boot()
	for n := 1; n < attempts && errors.Is(err, vm.ErrSilent) && ctx.Err() == nil; n++ {
		fmt.Fprintln(k.Log, "lab: once more:", firstLine(err))
		err = boot()
	}
	return err
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}
