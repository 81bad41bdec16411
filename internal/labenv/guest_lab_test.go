package labenv

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestGuest: the guest has the kernel, cards and disks that docs/background/testing.md describes.
func TestGuest(t *testing.T) {
	Guest(t)
	line := string(Kernel(t))
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil || !strings.HasPrefix(string(release), line+".") {
		t.Errorf("this is Linux %s (%v), and not of line %s", release, err, line)
	}
	for _, node := range []string{Disk, DiskPassthrough} {
		if info, err := os.Stat(node); err != nil || info.Mode()&os.ModeDevice == 0 {
			t.Errorf("%s is no device: %v", node, err)
		}
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(os.TempDir(), &fs); err != nil || fs.Type != unix.EXT4_SUPER_MAGIC {
		t.Errorf("%s is a file system of type %#x: %v", os.TempDir(), fs.Type, err)
	}
	pages, err := os.ReadFile("/proc/sys/vm/nr_hugepages")
	if err != nil || strings.TrimSpace(string(pages)) == "0" {
		t.Errorf("there are %s huge pages: %v", pages, err)
	}
	for _, module := range []string{"null_blk", "dm_flakey", "veth"} {
		if err := modprobe(module); err != nil {
			t.Errorf("load %s: %v", module, err)
		}
	}
}

// modprobe loads a module of the guest's kernel as a test would.
func modprobe(name string) error { return exec.Command("modprobe", name).Run() }
