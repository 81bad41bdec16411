package umem

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/hugetlb"
)

// part is one mapping of a region: its data, its control area, or a part of a slice.
type part struct {
	name  string
	size  uint64 // bytes, whole pages
	pages PageSize
	node  *int

	device string // that it is on; empty: none
}

// parts returns the mappings of a region with that layout: its data, its control area, which may have no size,
// and the parts of slices.
func (c Config) parts(l layout) []part {
	pages := c.partPages()
	all := []part{
		{name: "unifiedd-region", size: l.size, pages: c.Pages, node: c.Node, device: c.Device},
		{name: "unifiedd-control", size: roundUp(c.Control, Huge2M.Bytes()), pages: pages, node: c.Node},
	}
	at := 0
	for _, s := range c.Slices {
		if s.In > 0 {
			in := pages
			if s.Ordinary {
				in = Ordinary
			}
			all = append(all, part{name: "unifiedd-in-" + s.Name, size: l.parts[at].size, pages: in, node: c.Node})
			at++
		}
		if s.Out > 0 {
			all = append(all, part{name: "unifiedd-out-" + s.Name, size: l.parts[at].size, pages: Ordinary, node: c.Node})
			at++
		}
	}
	return all
}

// reserved returns the parts whose pages are allocated before the region is opened.
func (c Config) reserved(l layout) []part {
	return slices.DeleteFunc(c.parts(l), func(p part) bool { return p.size == 0 || p.pages == Ordinary })
}

// file makes a memfd of the part's size, or opens its device. A memfd has no pages yet.
func (p part) file() (*os.File, error) {
	if p.device != "" {
		return p.openDAX()
	}
	if p.pages != Ordinary {
		if err := hugetlb.Supported(p.pages.huge()); err != nil {
			return nil, fmt.Errorf("create a memfd: %w", err)
		}
	}
	fd, err := unix.MemfdCreate(p.name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|p.pages.memfdFlags())
	if err != nil {
		return nil, fmt.Errorf("create a memfd on %v: %w", p.pages, err)
	}
	f := os.NewFile(uintptr(fd), p.name)
	if err := unix.Ftruncate(fd, int64(p.size)); err != nil {
		f.Close()
		return nil, fmt.Errorf("size a memfd to %d bytes: %w", p.size, err)
	}
	return f, nil
}

func (p PageSize) memfdFlags() int {
	switch p {
	case Huge1G:
		return unix.MFD_HUGETLB | unix.MFD_HUGE_1GB
	case Ordinary:
		return 0
	}
	return unix.MFD_HUGETLB | unix.MFD_HUGE_2MB
}

func (p part) mmap(f *os.File) ([]byte, error) {
	return unix.Mmap(int(f.Fd()), 0, int(p.size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
}

// mapInto maps the part's memfd into a range: shared, populated and locked, neither inherited over fork nor in
// core dumps, on the node if one is given. The mapping keeps the memory, also when the memfd is closed.
func (p part) mapInto(a addressRange, offset uint64, f *os.File) error {
	b, err := p.mapRetry(a, offset, f)
	if err != nil {
		return p.explainMap(err)
	}
	return p.settle(b)
}

// lateFree is how long a region waits for free huge pages: the kernel frees those of a process that
// has ended some time later.
const lateFree = 2 * time.Second

// mapRetry maps the memfd. It retries while huge pages are short.
func (p part) mapRetry(a addressRange, offset uint64, f *os.File) ([]byte, error) {
	deadline := time.Now().Add(lateFree)
	for {
		b, err := a.mapAt(offset, p.size, f)
		if !errors.Is(err, unix.ENOMEM) || p.pages == Ordinary || time.Now().After(deadline) {
			return b, err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// settle binds, populates and pins a fresh mapping.
func (p part) settle(b []byte) error {
	if p.node != nil && p.device == "" { // a device has its node
		if err := bind(b, *p.node); err != nil {
			return fmt.Errorf("bind the region to NUMA node %d: %w (the nodes with memory are those of /sys/devices/system/node/has_memory)", *p.node, err)
		}
	}
	if err := unix.Madvise(b, unix.MADV_DONTFORK); err != nil {
		return fmt.Errorf("keep the region out of child processes: %w", err)
	}
	if err := unix.Madvise(b, unix.MADV_DONTDUMP); err != nil {
		return fmt.Errorf("keep the region out of core dumps: %w", err)
	}
	if err := unix.Madvise(b, unix.MADV_POPULATE_WRITE); err != nil {
		return p.explainPopulate(err)
	}
	if p.pages != Ordinary { // hugetlb pages and those of devices are never swapped, and mlock skips them
		return nil
	}
	if err := unix.Mlock(b); err != nil {
		return fmt.Errorf("lock %d bytes of the region in memory: %w (%s)", len(b), err, memlockHint())
	}
	return nil
}

// explainMap adds what to do if the kernel has no memory for the mapping.
func (p part) explainMap(err error) error {
	if p.device != "" {
		return fmt.Errorf("map %d bytes of %s: %w", p.size, p.device, err)
	}
	if p.pages == Ordinary || !errors.Is(err, unix.ENOMEM) {
		return fmt.Errorf("map %d bytes on %v: %w", p.size, p.pages, err)
	}
	pages := p.size / p.pages.Bytes()
	free, total, cerr := FreePages(p.pages, -1)
	if cerr != nil {
		return fmt.Errorf("map %d bytes on %v: %w (this kernel has no such pages: %w)", p.size, p.pages, err, cerr)
	}
	return fmt.Errorf("map %d bytes: %d %v needed, %d free: %w (run: echo %d > %s/nr_hugepages)",
		p.size, pages, p.pages, free, err, total+pages-min(free, pages), p.pages.huge().Dir(-1))
}

// explainPopulate adds what to do if there are pages, but not on the requested node.
func (p part) explainPopulate(err error) error {
	if p.node == nil || p.pages == Ordinary || p.device != "" {
		return fmt.Errorf("populate the region on %v: %w", p.pages, err)
	}
	_, total, cerr := FreePages(p.pages, *p.node)
	if cerr != nil {
		return fmt.Errorf("populate the region on NUMA node %d: %w (%w)", *p.node, err, cerr)
	}
	return fmt.Errorf("populate the region on NUMA node %d: %d %v needed there; it has %d, and those that were free did not do: %w (raise %s/nr_hugepages)",
		*p.node, p.size/p.pages.Bytes(), p.pages, total, err, p.pages.huge().Dir(*p.node))
}

func memlockHint() string {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &l); err != nil {
		return "raise LimitMEMLOCK or grant CAP_IPC_LOCK"
	}
	return fmt.Sprintf("raise LimitMEMLOCK, now %d KiB, or grant CAP_IPC_LOCK", l.Cur>>10)
}
