package testenv

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const zramControl = "/sys/class/zram-control/"

// Zram makes a compressed-memory block device of size bytes (a multiple of the page size) and
// returns its path. Its logical block is 4096 bytes. The end of the test removes the device, and
// fails if it is still open.
func Zram(t testing.TB, size uint64) string {
	t.Helper()
	Root(t)
	text, err := os.ReadFile(zramControl + "hot_add")
	Mustf(t, err, "add a zram device")
	id := strings.TrimSpace(string(text))
	forget := note(t, "zram", id)
	t.Cleanup(func() {
		t.Helper()
		Checkf(t, removeZram(id), "remove /dev/zram%s", id)
		forget()
	})
	Mustf(t, os.WriteFile("/sys/block/zram"+id+"/disksize", []byte(strconv.FormatUint(size, 10)), 0), "set the size of /dev/zram%s", id)
	path := "/dev/zram" + id
	Wait(t, 5*time.Second, path, func() bool { return exists(path) })
	return path
}

// removeZram removes the device. It retries, because the last close may have just happened.
func removeZram(id string) error {
	var err error
	within(5*time.Second, func() bool {
		err = os.WriteFile(zramControl+"hot_remove", []byte(id), 0)
		return !errors.Is(err, unix.EBUSY)
	})
	if errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Loop makes a loop device over file and returns its path. If size is not 0, the device has only
// size bytes. It disappears with the test, and with the process, because the kernel clears it on
// last close. It accesses the file by direct I/O if the file system supports that.
func Loop(t testing.TB, file string, size uint64) string {
	t.Helper()
	Root(t)
	back, err := os.OpenFile(file, os.O_RDWR, 0)
	Mustf(t, err, "open the file of a loop device")
	defer back.Close()
	dev, err := attachLoop(int(back.Fd()), file, size)
	Mustf(t, err, "make a loop device over %s", file)
	t.Cleanup(func() {
		t.Helper()
		Check(t, detachLoop(dev))
	})
	return dev.Name()
}

// attachLoop finds a free device and configures it. Another process may take the device in between,
// so it tries again.
func attachLoop(fd int, file string, size uint64) (*os.File, error) {
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer control.Close()
	config := unix.LoopConfig{Fd: uint32(fd)}
	config.Info.Flags = unix.LO_FLAGS_AUTOCLEAR | unix.LO_FLAGS_DIRECT_IO
	config.Info.Sizelimit = size
	copy(config.Info.File_name[:len(config.Info.File_name)-1], file)
	for range 20 {
		dev, err := freeLoop(int(control.Fd()))
		if err != nil {
			return nil, err
		}
		err = unix.IoctlLoopConfigure(int(dev.Fd()), &config)
		if err == nil {
			return dev, nil
		}
		dev.Close()
		if !errors.Is(err, unix.EBUSY) {
			return nil, err
		}
	}
	return nil, errors.New("every free loop device was taken by someone else")
}

func freeLoop(control int) (*os.File, error) {
	n, err := unix.IoctlRetInt(control, unix.LOOP_CTL_GET_FREE)
	if err != nil {
		return nil, fmt.Errorf("find a free loop device: %w", err)
	}
	return os.OpenFile("/dev/loop"+strconv.Itoa(n), os.O_RDWR, 0)
}

// detachLoop closes the device, which clears it, and waits until it is clear.
func detachLoop(dev *os.File) error {
	name := dev.Name()
	if err := dev.Close(); err != nil {
		return err
	}
	backing := filepath.Join("/sys/block", filepath.Base(name), "loop/backing_file")
	if !within(30*time.Second, func() bool { return !exists(backing) }) { // a mount namespace may just end
		return fmt.Errorf("detach %s: something still has it open", name)
	}
	return nil
}
