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

// Kit has the parts of guests.
type Kit struct {
	Kernel   archive.Kernel
	Emulator archive.Emulator
	Init     []byte    // the first process
	Log      io.Writer // gets messages about slow work and about retries
}

// Open gets emulator and kernel, fetches them if they are missing, and builds the first process.
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

// Attempts is how often Boot tries to boot a guest that hangs while it boots.
const Attempts = 3

// Boot boots a guest of c, with the kit's kernel, emulator and first process. It boots a guest that
// hangs again, unless the guest has the end of a wire, which ends with the guest.
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

// Again calls boot again while guests hang, at most attempts times.
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
