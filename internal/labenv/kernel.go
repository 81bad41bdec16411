package labenv

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Line is a line of kernels, as in make lab KERNEL=LINE.
type Line string

// The kernel lines. docs/background/testing.md lists the features of each.
const (
	Linux61  Line = "6.1"
	Linux612 Line = "6.12"
	Linux7   Line = "7"
)

// Guest skips the test outside the lab guest. It is the first call of each test in a file *_lab_test.go.
func Guest(t testing.TB) {
	t.Helper()
	if os.Getenv("UNIFIEDD_LAB_KERNEL") == "" {
		t.Skip("lab: only the lab guest has what this test needs (make lab)")
	}
}

// Kernel returns the line of the running kernel.
func Kernel(t testing.TB) Line {
	t.Helper()
	line := Line(os.Getenv("UNIFIEDD_LAB_KERNEL"))
	switch line {
	case Linux61, Linux612, Linux7:
		return line
	}
	t.Fatalf("this is not the lab guest (UNIFIEDD_LAB_KERNEL is %q): run the test with make lab", line)
	return ""
}

// Disk is the NVMe disk. DiskPassthrough is its node for passthrough commands. Their data is lost
// when the guest ends.
const (
	Disk            = "/dev/nvme0n1"
	DiskPassthrough = "/dev/ng0n1"
)

// Modules loads modules of the guest's kernel.
func Modules(t testing.TB, names ...string) {
	t.Helper()
	Kernel(t)
	for _, name := range names {
		if out, err := exec.Command("modprobe", name).CombinedOutput(); err != nil {
			t.Fatalf("load the module %s: %v\n%s", name, err, out)
		}
	}
}

// Program returns the path of a program that a lab test file requests with a line "//lab:program
// PACKAGE". name is the last element of the package's path.
func Program(t testing.TB, name string) string {
	t.Helper()
	path := filepath.Join(os.Getenv("UNIFIEDD_LAB_PROGRAMS"), name)
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("the lab has not built %s: %v", name, err)
	}
	return path
}
