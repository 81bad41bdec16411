package testenv

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/hugetlb"
)

// maskVariable is the environment variable that names what a test program must not see of the machine.
const (
	maskVariable = "UNIFIEDD_MASK"
	maskGiant    = "1GiB" // huge pages of 1 GiB
	maskHuge     = "huge" // all huge pages
)

// init hides what the environment variable names, from this program and its children. It does
// nothing in the lab guest or in the emulator of another architecture, which are other machines.
func init() {
	elsewhere := os.Getenv("UNIFIEDD_LAB_KERNEL") != "" || os.Getenv("UNIFIEDD_EMULATED") != ""
	switch what := os.Getenv(maskVariable); {
	case elsewhere || what == "" || what == maskGiant && !HasGiantPages():
		return
	case what == maskHuge && !hasHugePages():
		return
	case what != maskGiant && what != maskHuge:
		panic(fmt.Sprintf("%s=%s: there are only %s and %s", maskVariable, what, maskGiant, maskHuge))
	}
	if err := hidePages(os.Getenv(maskVariable) == maskGiant); err != nil {
		panic(fmt.Sprintf("%s: %v", maskVariable, err))
	}
}

// HasGiantPages reports whether the machine has huge pages of 1 GiB. Both its processor and its
// kernel must support them. Tests must expect that they are absent.
func HasGiantPages() bool {
	_, err := os.Stat(hugetlb.GiB1.Dir(-1))
	return err == nil
}

func hasHugePages() bool {
	_, err := os.Stat(hugetlb.MiB2.Dir(-1))
	return err == nil
}

// WithoutGiantPages runs tests of this program again as if the machine had no huge pages of 1 GiB.
func WithoutGiantPages(t *testing.T, tests ...string) {
	t.Helper()
	masked(t, maskGiant, tests)
}

// WithoutHugePages runs tests of this program again as if the machine had no huge pages.
func WithoutHugePages(t *testing.T, tests ...string) {
	t.Helper()
	masked(t, maskHuge, tests)
}

func masked(t *testing.T, what string, tests []string) {
	t.Helper()
	Root(t)
	cmd := exec.Command(os.Args[0], "-test.v", "-test.run", "^("+strings.Join(tests, "|")+")$")
	cmd.Env = append(os.Environ(), maskVariable+"="+what)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("without %s: %v\n%s", what, err, out)
	}
	for _, name := range tests {
		if !strings.Contains(string(out), "--- PASS: "+name+" ") {
			t.Errorf("without %s %s did not pass:\n%s", what, name, out)
		}
	}
}

// hidePages runs the program again in a mount namespace whose sysfs has no huge pages, or none of 1 GiB.
// Only a process with one thread can move there. exec makes this process one.
func hidePages(giant bool) error {
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("make a mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keep mounts in their namespace: %w", err)
	}
	dirs, err := filepath.Glob("/sys/devices/system/node/node*/hugepages")
	if err != nil {
		return err
	}
	for _, dir := range append(dirs, filepath.Dir(hugetlb.GiB1.Dir(-1))) {
		hide := func() error { return unix.Mount("tmpfs", dir, "tmpfs", 0, "") }
		if giant {
			hide = func() error { return keepOnly(dir, filepath.Base(hugetlb.MiB2.Dir(-1))) }
		}
		if err := hide(); err != nil {
			return fmt.Errorf("hide what is in %s: %w", dir, err)
		}
	}
	return unix.Exec("/proc/self/exe", os.Args, os.Environ())
}

// keepOnly mounts a directory over dir that contains only one of its subdirectories.
func keepOnly(dir, name string) error {
	whole, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer whole.Close()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
		return err
	}
	return unix.Mount(fmt.Sprintf("/proc/self/fd/%d/%s", whole.Fd(), name), filepath.Join(dir, name), "", unix.MS_BIND, "")
}
