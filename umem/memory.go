package umem

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// mapPages maps size bytes of a fresh memfd: shared, populated, locked, neither
// inherited over fork nor in core dumps, on the node if one is given. The memfd's
// descriptor is closed again; the mapping keeps the memory.
func mapPages(name string, size uint64, p PageSize, node *int) ([]byte, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|p.memfdFlags())
	if err != nil {
		return nil, fmt.Errorf("create a memfd on %v: %w", p, err)
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		return nil, fmt.Errorf("size a memfd to %d bytes: %w", size, err)
	}
	b, err := mapRetry(fd, size)
	if err != nil {
		return nil, explainMap(err, size, p, node)
	}
	if err := settle(b, p, node); err != nil {
		unix.Munmap(b)
		return nil, err
	}
	return b, nil
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

// mapRetry maps the memfd, trying again for up to a second while huge pages are
// short: the kernel frees those of a process that ended only after a while.
func mapRetry(fd int, size uint64) ([]byte, error) {
	deadline := time.Now().Add(time.Second)
	for {
		b, err := unix.Mmap(fd, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if !errors.Is(err, unix.ENOMEM) || time.Now().After(deadline) {
			return b, err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// settle binds, populates and pins a fresh mapping.
func settle(b []byte, p PageSize, node *int) error {
	if node != nil {
		if err := bind(b, *node); err != nil {
			return fmt.Errorf("bind the region to NUMA node %d: %w (the nodes with memory are those of /sys/devices/system/node/has_memory)", *node, err)
		}
	}
	if err := unix.Madvise(b, unix.MADV_DONTFORK); err != nil {
		return fmt.Errorf("keep the region out of child processes: %w", err)
	}
	if err := unix.Madvise(b, unix.MADV_DONTDUMP); err != nil {
		return fmt.Errorf("keep the region out of core dumps: %w", err)
	}
	if err := unix.Madvise(b, unix.MADV_POPULATE_WRITE); err != nil {
		return explainPopulate(err, uint64(len(b)), p, node)
	}
	if p != Ordinary { // hugetlb pages are never swapped; mlock passes them over
		return nil
	}
	if err := unix.Mlock(b); err != nil {
		return fmt.Errorf("lock %d bytes of the region in memory: %w (%s)", len(b), err, memlockHint())
	}
	return nil
}

// explainMap tells what to do when the kernel has no memory for the mapping.
func explainMap(err error, size uint64, p PageSize, node *int) error {
	if p == Ordinary || !errors.Is(err, unix.ENOMEM) {
		return fmt.Errorf("map %d bytes on %v: %w", size, p, err)
	}
	pages := size / p.Bytes()
	free, total, cerr := FreePages(p, -1)
	if cerr != nil {
		return fmt.Errorf("map %d bytes on %v: %w (this kernel has no such pages: %w)", size, p, err, cerr)
	}
	return fmt.Errorf("map %d bytes: %d %v needed, %d free: %w (run: echo %d > %s/nr_hugepages)",
		size, pages, p, free, err, total+pages-min(free, pages), p.dir(-1))
}

// explainPopulate tells what to do when pages are there but not where bound.
func explainPopulate(err error, size uint64, p PageSize, node *int) error {
	if node == nil || p == Ordinary {
		return fmt.Errorf("populate the region on %v: %w", p, err)
	}
	_, total, cerr := FreePages(p, *node)
	if cerr != nil {
		return fmt.Errorf("populate the region on NUMA node %d: %w (%w)", *node, err, cerr)
	}
	return fmt.Errorf("populate the region on NUMA node %d: %d %v needed there; it has %d, and those that were free did not do: %w (raise %s/nr_hugepages)",
		*node, size/p.Bytes(), p, total, err, p.dir(*node))
}

func memlockHint() string {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &l); err != nil {
		return "raise LimitMEMLOCK or grant CAP_IPC_LOCK"
	}
	return fmt.Sprintf("raise LimitMEMLOCK, now %d KiB, or grant CAP_IPC_LOCK", l.Cur>>10)
}
