package umem

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// openDAX opens the device of a part and checks that the part fits on it. The file keeps the device
// from other regions until it is closed. Its memory needs no reserving: the kernel gives out that of
// a device-DAX device only by mappings of the device.
func (p part) openDAX() (*os.File, error) {
	f, err := os.OpenFile(p.device, os.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("region on a device: %w", err)
	}
	err = p.checkDAX(f)
	if err == nil {
		if err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
			err = fmt.Errorf("region on %s: another process has its region there (stop it, or use another device)", p.device)
		}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// checkDAX checks that a file is a device-DAX device with room for the part. An access beyond its end
// would kill this process.
func (p part) checkDAX(f *os.File) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return fmt.Errorf("region on %s: %w", p.device, err)
	}
	dir := fmt.Sprintf("/sys/dev/char/%d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev))
	bus, err := os.Readlink(dir + "/subsystem")
	if st.Mode&unix.S_IFMT != unix.S_IFCHR || err != nil || filepath.Base(bus) != "dax" {
		return fmt.Errorf("region on %s: it is not a device-DAX device (those are /dev/dax*; ndctl create-namespace --mode=devdax makes one of persistent memory)", p.device)
	}
	size, err := readNumber(dir + "/size")
	if err != nil {
		return fmt.Errorf("region on %s: %w", p.device, err)
	}
	align, err := readNumber(dir + "/align")
	if err != nil {
		return fmt.Errorf("region on %s: %w", p.device, err)
	}
	if align > p.pages.Bytes() || p.pages.Bytes()%align != 0 {
		return fmt.Errorf("region on %s: it is mapped in pieces of %d bytes, and the region has %v (set region.pages to that, or make the device with another alignment)", p.device, align, p.pages)
	}
	if node, err := readNumber(dir + "/numa_node"); err == nil && p.node != nil && node != uint64(*p.node) { // -1 is no number: it is not known
		return fmt.Errorf("region on %s: it is on NUMA node %d, and the region is to be on node %d (set region.node to %[2]d)", p.device, node, *p.node)
	}
	if size < p.size {
		return fmt.Errorf("region on %s: it has %d bytes, and the region takes %d (lower region.size)", p.device, size, p.size)
	}
	return nil
}

// readNumber reads a number from a file of sysfs.
func readNumber(path string) (uint64, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(b)), 0, 64)
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", path, err)
	}
	return n, nil
}

// CheckDevice checks that the region fits on Config.Device, also while another process has its region
// there. It does nothing without a device.
func (c Config) CheckDevice() error {
	c.setDefaults()
	l, err := newLayout(c)
	if err != nil || c.Device == "" {
		return err
	}
	if err := c.checkDevice(); err != nil {
		return err
	}
	p := c.parts(l)[0]
	f, err := os.OpenFile(p.device, os.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("region on a device: %w", err)
	}
	return errors.Join(p.checkDAX(f), f.Close())
}

// checkDevice checks that the other settings fit a region on a device.
func (c Config) checkDevice() error {
	if c.Device != "" && c.Pages == Ordinary {
		return fmt.Errorf("region on %s: it cannot have %v (use 2 MiB or 1 GiB pages, as the device is aligned)", c.Device, c.Pages)
	}
	return nil
}
