package umem

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/align"
	"github.com/unifiedd/unifiedd/internal/cgroup"
	"github.com/unifiedd/unifiedd/internal/hugetlb"
)

// PageSize is the kind of page that backs a region.
type PageSize uint8

const (
	// Auto, the default, is 2 MiB huge pages if enough of them are free or can be reserved, and otherwise Ordinary.
	Auto PageSize = iota
	// Huge2M is 2 MiB huge pages.
	Huge2M
	// Huge1G is 1 GiB huge pages, which not every processor has.
	Huge1G
	// Ordinary is the machine's base pages, locked in memory. They are slower for every device, and
	// only for machines without huge pages.
	Ordinary
)

// Bytes returns the size of one page.
func (p PageSize) Bytes() uint64 {
	switch p {
	case Huge1G:
		return uint64(hugetlb.GiB1)
	case Ordinary:
		return uint64(os.Getpagesize())
	}
	return uint64(hugetlb.MiB2)
}

func (p PageSize) String() string {
	if p == Ordinary {
		return "ordinary pages"
	}
	return p.huge().String()
}

// huge returns the size of the kernel's huge pages. p must not be Ordinary.
func (p PageSize) huge() hugetlb.Size { return hugetlb.Size(p.Bytes()) }

// FreePages returns how many huge pages of the size are free, without those promised to a mapping,
// and how many there are. It counts on one NUMA node or, if node < 0, on the machine. For a single
// node the kernel does not report how many are promised.
func FreePages(p PageSize, node int) (free, total uint64, err error) {
	if p == Ordinary {
		return 0, 0, fmt.Errorf("count huge pages: %v are not reserved", p)
	}
	if free, total, err = hugetlb.Free(p.huge(), node); err != nil {
		return 0, 0, fmt.Errorf("count %v: %w", p, err)
	}
	return free, total, nil
}

// MayReserve reports whether this process may reserve huge pages of 2 MiB.
func MayReserve() bool {
	return unix.Faccessat(unix.AT_FDCWD, Huge2M.huge().Dir(-1)+"/nr_hugepages", unix.W_OK, unix.AT_EACCESS) == nil
}

// Need is a number of huge pages that a region takes.
type Need struct {
	Pages PageSize
	Node  int    // NUMA node; negative: any
	Bytes uint64 // amount of memory, rounded up to whole pages
}

// Count returns the number of pages.
func (n Need) Count() uint64 { return n.Pages.huge().Pages(n.Bytes) }

// Needs returns which huge pages a region takes: its own, and 2 MiB pages for the control area
// beside it and for what attached programs only read. A region on ordinary pages takes none. One of Auto takes them if
// they are there.
func (c Config) Needs() []Need {
	node := -1
	if c.Node != nil {
		node = *c.Node
	}
	size, control := align.Up(c.Size, c.Pages.Bytes()), align.Up(c.Control, Huge2M.Bytes())
	for _, s := range c.Slices {
		control += align.Up(s.In, Huge2M.Bytes())
	}
	if c.Device != "" {
		size = 0
	}
	switch {
	case c.Pages == Ordinary:
		return nil
	case size == 0 && control == 0:
		return nil
	case size == 0:
		return []Need{{Huge2M, node, control}}
	case c.Pages == Huge2M, c.Pages == Auto:
		return []Need{{Huge2M, node, size + control}}
	case control == 0:
		return []Need{{c.Pages, node, size}}
	}
	return []Need{{c.Pages, node, size}, {Huge2M, node, control}}
}

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

// checkGroup checks that the control group of this process may take the region's huge pages. The kernel would not
// say so: a limit that is not one of reservations ends the process with SIGBUS when it first touches the memory.
func (c Config) checkGroup() error { return c.checkLimit(cgroup.HugePages) }

func (c Config) checkLimit(limit func(size uint64) (cgroup.Limit, bool)) error {
	for _, n := range c.Needs() {
		l, limited := limit(n.Pages.Bytes())
		if need := n.Count() * n.Pages.Bytes(); limited && l.Left < need {
			return fmt.Errorf("the control group may take %d more %v, and the region needs %d (raise the limit in %s, or lower region.size)",
				l.Left/n.Pages.Bytes(), n.Pages, n.Count(), l.File)
		}
	}
	return nil
}
