package archive

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
)

// Kernel is an unpacked kernel.
type Kernel struct {
	Line Line
	// Version is the kernel's output of uname -r.
	Version string
	// Image is the file to boot.
	Image string
	// Modules is the directory of its modules and of depmod's files.
	Modules string
}

// kernelParts matches the packages of a kernel: one, or an empty one and two more.
var kernelParts = regexp.MustCompile(`^linux-(image|binary|modules)-[0-9]`)

// Kernel returns the kernel of a line. It fetches the kernel if the store does not have it.
func (s *Store) Kernel(ctx context.Context, line Line) (Kernel, error) {
	dir, err := s.get(ctx, "kernel-"+line.Name, func(ctx context.Context, into, scratch string) error {
		s.say("fetching the newest kernel %s of %s", line.Name, line.Suite)
		return fetchKernel(ctx, line, into, scratch)
	})
	if err != nil {
		return Kernel{}, fmt.Errorf("get kernel %s: %w", line.Name, err)
	}
	return kernelIn(dir, line)
}

func fetchKernel(ctx context.Context, line Line, into, scratch string) error {
	mirror, err := findMirror(ctx)
	if err != nil {
		return err
	}
	a, err := newApt(scratch, mirror, line.Suite)
	if err == nil {
		err = a.update(ctx)
	}
	if err != nil {
		return err
	}
	names, err := a.closure(ctx, kernelParts, "linux-image-amd64")
	if err != nil {
		return err
	}
	files, err := a.download(ctx, names[1:]) // without the package that depends on the newest kernel
	if err == nil {
		err = unpack(ctx, files, into)
	}
	if err != nil {
		return err
	}
	return indexModules(ctx, into)
}

// indexModules runs depmod, as an installation would.
func indexModules(ctx context.Context, root string) error {
	lib := filepath.Join(root, "lib")
	if !isDir(lib) {
		if err := os.Symlink("usr/lib", lib); err != nil {
			return fmt.Errorf("index the kernel's modules: %w", err)
		}
	}
	k, err := kernelIn(root, Line{})
	if err != nil {
		return err
	}
	if _, err := output(ctx, "depmod", "-b", root, k.Version); err != nil {
		return fmt.Errorf("index the kernel's modules: %w", err)
	}
	return nil
}

// kernelIn checks an unpacked kernel.
func kernelIn(dir string, line Line) (Kernel, error) {
	versions, _ := filepath.Glob(filepath.Join(dir, "lib", "modules", "*"))
	if len(versions) != 1 {
		return Kernel{}, fmt.Errorf("%s has modules of %d kernels, not of one (go run ./selftests/lab -update fetches it anew)", dir, len(versions))
	}
	k := Kernel{Line: line, Version: filepath.Base(versions[0]), Modules: versions[0]}
	for _, image := range []string{filepath.Join(dir, "boot", "vmlinuz-"+k.Version), filepath.Join(k.Modules, "vmlinuz")} {
		if _, err := os.Stat(image); err == nil {
			k.Image = image
			return k, nil
		}
	}
	return Kernel{}, fmt.Errorf("%s has no kernel image (go run ./selftests/lab -update fetches it anew)", dir)
}
