package vm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/selftests/lab/initramfs"
)

// firstInherited is the number of the first of exec.Cmd.ExtraFiles in the child.
const firstInherited = 3

// files are the files that the emulator inherits. They have no names, so there is nothing to
// delete.
type files struct {
	all  []*os.File
	fds  inherited
	ours *os.File // this end of the channel
}

// open makes them all, or none.
func (c Config) open(ctx context.Context) (_ *files, err error) {
	f := new(files)
	defer func() {
		if err != nil {
			err = errors.Join(err, f.close())
			if f.ours != nil {
				err = errors.Join(err, f.ours.Close())
			}
		}
	}()
	if c.Link != nil {
		f.fds.link = f.add(c.Link)
	}
	if err := f.tap(c.Tap); err != nil {
		return nil, err
	}
	if err := f.initramfs(c); err != nil {
		return nil, err
	}
	if err := f.channel(); err != nil {
		return nil, err
	}
	if f.fds.disk, err = f.disk(diskBytes); err != nil {
		return nil, err
	}
	if f.fds.blocks, err = f.disk(oddBytes); err != nil {
		return nil, err
	}
	if f.fds.plain, err = f.disk(plainBytes); err != nil {
		return nil, err
	}
	if f.fds.scratch, err = f.disk(diskBytes); err != nil {
		return nil, err
	}
	if err := format(ctx, f.all[len(f.all)-1]); err != nil {
		return nil, err
	}
	return f, nil
}

// add returns the number the file will have in the emulator.
func (f *files) add(file *os.File) int {
	f.all = append(f.all, file)
	return firstInherited + len(f.all) - 1
}

// close closes the files that the emulator has inherited, or will never need.
func (f *files) close() error {
	var errs []error
	for _, file := range f.all {
		errs = append(errs, file.Close())
	}
	f.all = nil
	return errors.Join(errs...)
}

// tap adds the caller's tap interface, if there is one. The caller's file stays open.
func (f *files) tap(tap *os.File) error {
	if tap == nil {
		return nil
	}
	fd, err := unix.FcntlInt(tap.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("hand the tap interface to the emulator: %w", err)
	}
	f.fds.tap = f.add(os.NewFile(uintptr(fd), "tap"))
	return nil
}

func (f *files) initramfs(c Config) error {
	fd, err := unix.MemfdCreate("lab-initramfs", unix.MFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("make a file for the initramfs: %w", err)
	}
	file := os.NewFile(uintptr(fd), "initramfs")
	f.fds.initramfs = f.add(file)
	i := initramfs.Image{Init: c.Init, KernelModules: c.Kernel.Modules, Modules: modules, Optional: optional, Setup: c.setup()}
	return i.Write(file)
}

func (f *files) channel() error {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("make the channel to the guest: %w", err)
	}
	f.ours = os.NewFile(uintptr(pair[0]), "channel")
	f.fds.channel = f.add(os.NewFile(uintptr(pair[1]), "channel"))
	return nil
}

// disk makes an empty disk. It removes the name before the disk has any contents.
func (f *files) disk(bytes int64) (int, error) {
	file, err := os.CreateTemp("", "unifiedd-lab-disk-")
	if err != nil {
		return 0, fmt.Errorf("make a disk for the guest: %w", err)
	}
	n := f.add(file)
	if err := os.Remove(file.Name()); err != nil {
		return 0, fmt.Errorf("make a disk for the guest: %w", err)
	}
	if err := file.Truncate(bytes); err != nil {
		return 0, fmt.Errorf("make a disk for the guest: %w (set TMPDIR to a directory with room)", err)
	}
	return n, nil
}

// format makes a file system on a disk.
func format(ctx context.Context, disk *os.File) error {
	cmd := exec.CommandContext(ctx, "mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=1,lazy_journal_init=1", fdPath(firstInherited))
	cmd.ExtraFiles = []*os.File{disk}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("make a file system for the guest with mkfs.ext4: %w\n%s", err, out)
	}
	return nil
}

// Link returns the two ends of a wire between two guests. Boot takes ownership of an end.
func Link() ([2]*os.File, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return [2]*os.File{}, fmt.Errorf("make the wire between the guests: %w", err)
	}
	return [2]*os.File{os.NewFile(uintptr(pair[0]), "link"), os.NewFile(uintptr(pair[1]), "link")}, nil
}
