package nvme

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// sound opens a target without a fault.
func sound(t *testing.T, c TargetConfig) *Target {
	t.Helper()
	to, err := OpenTarget(c)
	testenv.Must(t, err)
	t.Cleanup(func() { testenv.Check(t, to.Close()) })
	testenv.Checkf(t, to.Health(), "nothing has happened to it")
	return to
}

// ill checks the error that a target's Health returns.
func ill(t *testing.T, to *Target, want error, says string) {
	t.Helper()
	if err := to.Health(); !errors.Is(err, want) || !strings.Contains(err.Error(), says) {
		t.Errorf("%v, and not %v with %q", err, want, says)
	}
}

// TestHealthOfDevice: Health reports a device that shrinks, and one that becomes read-only.
func TestHealthOfDevice(t *testing.T) {
	file := testenv.DiskFile(t, 8<<20)
	dev := testenv.Loop(t, file, 0)
	to := sound(t, TargetConfig{Path: dev})
	testenv.Must(t, os.Truncate(file, 4<<20))
	testenv.Must(t, unix.IoctlSetInt(to.FD(), unix.LOOP_SET_CAPACITY, 0))
	ill(t, to, ErrDeviceTooSmall, "it had 8388608 bytes and has 4194304")

	dev = testenv.Loop(t, testenv.DiskFile(t, 8<<20), 0)
	to = sound(t, TargetConfig{Path: dev})
	t.Cleanup(func() { run(t, "blockdev", "--setrw", dev) }) // the setting would outlive the test
	run(t, "blockdev", "--setro", dev)
	ill(t, to, ErrDeviceReadOnly, "blockdev --setrw "+dev)
}

// TestHealthOfFile: Health reports a file system that becomes read-only.
func TestHealthOfFile(t *testing.T) {
	dir := testenv.Ext4(t, 4<<20)
	path := filepath.Join(dir, "file")
	testenv.Must(t, os.WriteFile(path, make([]byte, 4096), 0o600))
	to := sound(t, TargetConfig{Path: path, ReadOnly: true})
	testenv.Must(t, unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	ill(t, to, ErrReadOnlyFileSystem, "mount it for writing")
}
