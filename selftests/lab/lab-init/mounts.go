package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/selftests/lab/wire"
)

// mount is one mount. Mounts are made in order.
type mount struct {
	what, where, kind string
	flags             uintptr
	options           string
}

// early has the mounts that loading modules needs.
var early = []mount{
	{"proc", "/proc", "proc", 0, ""},
	{"sysfs", "/sys", "sysfs", 0, ""},
	{"devtmpfs", "/dev", "devtmpfs", 0, ""},
}

// newRoot is the directory where lab-init builds the guest's root directory.
const newRoot = "/root"

// root is the host's root directory with a layer of memory over it. The guest caches only files of
// the host that do not change: programs.
var root = []mount{
	{wire.HostTag, "/host", "9p", unix.MS_RDONLY, "trans=virtio,version=9p2000.L,cache=loose,msize=524288"},
	{"tmpfs", "/over", "tmpfs", 0, "size=25%"},
	{"overlay", newRoot, "overlay", 0, "lowerdir=/host,upperdir=/over/upper,workdir=/over/work"},
}

// late has the mounts in the new root, over the host's directories.
var late = []mount{
	{"proc", "/proc", "proc", 0, ""},
	{"sysfs", "/sys", "sysfs", 0, ""},
	{"cgroup2", "/sys/fs/cgroup", "cgroup2", 0, ""},
	{"bpf", "/sys/fs/bpf", "bpf", 0, ""},
	{"tracefs", "/sys/kernel/tracing", "tracefs", 0, ""},
	{"debugfs", "/sys/kernel/debug", "debugfs", 0, ""},
	{"devtmpfs", "/dev", "devtmpfs", 0, ""},
	{"devpts", "/dev/pts", "devpts", 0, "mode=620,ptmxmode=666"},
	{"tmpfs", "/dev/shm", "tmpfs", 0, "mode=1777"},
	{"tmpfs", "/run", "tmpfs", 0, "mode=755"},
}

func mountAll(below string, all []mount) error {
	for _, m := range all {
		where := filepath.Join(below, m.where)
		if err := os.MkdirAll(where, 0o755); err != nil {
			return fmt.Errorf("make %s to mount on: %w", where, err)
		}
		if err := unix.Mount(m.what, where, m.kind, m.flags, m.options); err != nil {
			return fmt.Errorf("mount %s on %s: %w", m.kind, where, err)
		}
	}
	return nil
}

// mountRoot builds the root directory.
func mountRoot(setup wire.Setup, release string) error {
	if err := mountAll("/", root[:2]); err != nil {
		return err
	}
	for _, dir := range []string{"/over/upper", "/over/work"} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return fmt.Errorf("make %s: %w", dir, err)
		}
	}
	if err := mountAll("/", root[2:]); err != nil {
		return err
	}
	if err := mountAll(newRoot, late); err != nil {
		return err
	}
	if err := mountScratch(); err != nil {
		return err
	}
	return bindAll(setup, release)
}

// mountScratch mounts the disk for temporary files on /tmp. Each guest gets a new disk.
func mountScratch() error {
	disk, err := diskWithSerial(wire.ScratchSerial)
	if err != nil {
		return err
	}
	tmp := filepath.Join(newRoot, "tmp")
	if err := unix.Mount(disk, tmp, "ext4", 0, ""); err != nil {
		return fmt.Errorf("mount %s on /tmp: %w", disk, err)
	}
	if err := os.Chmod(tmp, 0o1777); err != nil {
		return fmt.Errorf("open /tmp to everyone: %w", err)
	}
	return nil
}

// diskWithSerial returns the node of the virtio disk with that serial number.
func diskWithSerial(serial string) (string, error) {
	files, _ := filepath.Glob("/sys/block/vd*/serial")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err == nil && strings.TrimSpace(string(text)) == serial {
			return "/dev/" + filepath.Base(filepath.Dir(file)), nil
		}
	}
	return "", fmt.Errorf("look for the disk %q among %d: not there", serial, len(files))
}

// bindAll mounts directories of the host where the guest would otherwise see something else: the
// modules of this kernel, and the shares of the setup.
func bindAll(setup wire.Setup, release string) error {
	binds := map[string]string{setup.KernelModules: "/lib/modules/" + release}
	for _, dir := range setup.Shares {
		binds[dir] = dir
	}
	for from, to := range binds {
		target := filepath.Join(newRoot, to)
		if err := os.MkdirAll(target, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("make %s to show the host's %s: %w", to, from, err)
		}
		if err := unix.Mount(filepath.Join("/host", from), target, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("show the host's %s as %s: %w", from, to, err)
		}
	}
	return nil
}
