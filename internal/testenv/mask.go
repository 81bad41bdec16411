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
)

// init hides what the environment variable names, from this program and its children. It does
// nothing in the lab guest or in the emulator of another architecture, which are other machines.
func init() {
	elsewhere := os.Getenv("UNIFIEDD_LAB_KERNEL") != "" || os.Getenv("UNIFIEDD_EMULATED") != ""
	switch what := os.Getenv(maskVariable); {
	case elsewhere || what == "" || what == maskGiant && !HasGiantPages():
		return
	case what != maskGiant:
		panic(fmt.Sprintf("%s=%s: there is only %s", maskVariable, what, maskGiant))
	}
	if err := hideGiantPages(); err != nil {
		panic(fmt.Sprintf("%s: %v", maskVariable, err))
	}
}

// HasGiantPages reports whether the machine has huge pages of 1 GiB. Both its processor and its
// kernel must support them. Tests must expect that they are absent.
func HasGiantPages() bool {
	_, err := os.Stat(hugetlb.GiB1.Dir(-1))
	return err == nil
}

// WithoutGiantPages runs tests of this program again as if the machine had no huge pages of 1 GiB.
func WithoutGiantPages(t *testing.T, tests ...string) {
	t.Helper()
	Root(t)
	cmd := exec.Command(os.Args[0], "-test.v", "-test.run", "^("+strings.Join(tests, "|")+")$")
	cmd.Env = append(os.Environ(), maskVariable+"="+maskGiant)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("without pages of 1 GiB: %v\n%s", err, out)
	}
	for _, name := range tests {
		if !strings.Contains(string(out), "--- PASS: "+name+" ") {
			t.Errorf("without pages of 1 GiB %s did not pass:\n%s", name, out)
		}
	}
}

// hideGiantPages runs the program again in a mount namespace whose sysfs has no pages of 1 GiB.
// Only a process with one thread can move there. exec makes this process one.
func hideGiantPages() error {
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
		if err := keepOnly(dir, filepath.Base(hugetlb.MiB2.Dir(-1))); err != nil {
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
