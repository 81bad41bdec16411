package archive

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Emulator is an unpacked QEMU.
type Emulator struct {
	// Program is its path.
	Program string
	// Env is added to the program's environment: the path of its libraries.
	Env []string
	// Data are directories of firmware, for option -L.
	Data []string
	// Version is the first line of its version text.
	Version string
}

// These suites have emulators that are new enough for an igb card.
var emulatorSuites = []string{"bookworm-backports", "bookworm"}

// Emulator returns the emulator. It fetches the emulator if the store does not have it.
func (s *Store) Emulator(ctx context.Context) (Emulator, error) {
	dir, err := s.get(ctx, "qemu", func(ctx context.Context, into, scratch string) error {
		s.say("fetching the emulator of %s", emulatorSuites[0])
		return fetchEmulator(ctx, into, scratch)
	})
	if err != nil {
		return Emulator{}, fmt.Errorf("get the emulator: %w", err)
	}
	return emulatorIn(ctx, dir)
}

func fetchEmulator(ctx context.Context, into, scratch string) error {
	mirror, err := findMirror(ctx)
	if err != nil {
		return err
	}
	a, err := newApt(scratch, mirror, emulatorSuites...)
	if err == nil {
		err = a.update(ctx)
	}
	if err != nil {
		return err
	}
	specs, err := a.missing(ctx, emulatorSuites[0], "qemu-system-x86")
	if err != nil {
		return err
	}
	// The list includes the user-mode emulators if one is installed. The lab does not use them.
	specs = slices.DeleteFunc(specs, func(spec string) bool { return strings.HasPrefix(spec, "qemu-user") })
	files, err := a.download(ctx, specs)
	if err != nil {
		return err
	}
	return unpack(ctx, files, into)
}

// emulatorIn checks an unpacked emulator and tries to start it.
func emulatorIn(ctx context.Context, dir string) (Emulator, error) {
	libraries := []string{filepath.Join(dir, "usr/lib/x86_64-linux-gnu"), filepath.Join(dir, "lib/x86_64-linux-gnu")}
	e := Emulator{
		Program: filepath.Join(dir, "usr/bin/qemu-system-x86_64"),
		Env:     []string{"LD_LIBRARY_PATH=" + strings.Join(libraries, ":")},
	}
	for _, data := range []string{"usr/share/qemu", "usr/share/seabios", "usr/lib/ipxe/qemu"} {
		e.Data = append(e.Data, filepath.Join(dir, data))
	}
	cmd := command(ctx, e.Program, "--version")
	cmd.Env = append(os.Environ(), e.Env...)
	text, err := finish(cmd)
	if err != nil {
		return Emulator{}, fmt.Errorf("try the emulator: %w (go run ./selftests/lab -update fetches it anew)", err)
	}
	e.Version, _, _ = strings.Cut(text, "\n")
	return e, nil
}
