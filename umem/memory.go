package umem

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/align"
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
		{name: "unifiedd-control", size: align.Up(c.Control, Huge2M.Bytes()), pages: pages, node: c.Node},
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

// hugetlbMagic identifies the file system of memfds on huge pages: include/uapi/linux/magic.h.
const hugetlbMagic = 0x958458f6

// Memory has the pages of a region that is not open yet: populated memfds, whose pages no other
// process can take. Allocate makes it, and reserves the huge pages that are missing. With [Config].Device
// the region's data is on that device, which Memory keeps open. [Config].Memory opens a region on it, in
// this process or in one that inherits its files. It belongs to one goroutine. Files, Release and GiveBack
// do nothing on a nil Memory.
type Memory struct {
	files []*os.File // of the data, of the control area if there is one, and of what attached programs read
	held  hugetlb.Held
	short error // why a region of Auto has ordinary pages
}

// Allocate makes the memory for a region with that configuration. It opens Config.Device, takes free huge
// pages and reserves the missing ones. To other processes that allocate this is one step: each waits until the one before it has
// its pages. Only root may reserve. The caller gives the memory back when the process that uses the region
// has closed it. After an error nothing has changed; it is ENOMEM if the kernel finds too little contiguous
// memory. For a region on ordinary pages, Allocate returns a Memory without files.
func Allocate(c Config) (*Memory, error) { return allocate(c, true) }

// AllocateFree is Allocate for processes that may not reserve: it takes only free pages.
func AllocateFree(c Config) (*Memory, error) { return allocate(c, false) }

func allocate(c Config, reserve bool) (*Memory, error) {
	c.setDefaults()
	l, err := newLayout(c)
	if err != nil {
		return nil, fmt.Errorf("allocate region: %w", err)
	}
	if err := c.checkDevice(); err != nil {
		return nil, err
	}
	m := &Memory{}
	switch {
	case c.Pages == Ordinary:
		return m, nil
	case c.Pages == Auto && c.Device == "":
		return allocateAuto(c, reserve)
	}
	if err := c.checkGroup(); err != nil {
		return nil, fmt.Errorf("allocate region: %w", err)
	}
	if err := hugetlb.Sweep(); err != nil { // otherwise pages left by killed processes count as free
		return nil, err
	}
	unlock, locked := hugetlb.Lock()
	if locked == nil {
		defer unlock()
	}
	err = m.take(c.reserved(l))
	if errors.Is(err, errShort) && reserve {
		if locked != nil {
			return nil, fmt.Errorf("allocate region: %w: %w", err, locked)
		}
		err = m.reserve(c, l)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("allocate region: %w", err), m.held.Cancel())
	}
	return m, nil
}

// allocateAuto takes huge pages of 2 MiB, or says why there are none.
func allocateAuto(c Config, reserve bool) (*Memory, error) {
	c.Pages = Huge2M
	m, err := allocate(c, reserve)
	for end := time.Now().Add(lateFree); errors.Is(err, errShort) && !reserve && c.mayBeFreed() && time.Now().Before(end); {
		time.Sleep(20 * time.Millisecond) // those of an earlier process are freed some time after its end
		m, err = allocate(c, reserve)
	}
	if err == nil {
		return m, nil
	}
	if have, known := available(); known && have < c.bytes() {
		return nil, fmt.Errorf("%w; on ordinary pages the region takes %d MiB, and %d are available: make it smaller", err, c.bytes()>>20, have>>20)
	}
	return &Memory{short: err}, nil
}

// bytes returns how much memory the region takes.
func (c Config) bytes() (n uint64) {
	for _, need := range c.Needs() {
		n += need.Bytes
	}
	return n
}

// available returns how many bytes of memory the machine can give out.
func available() (bytes uint64, known bool) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(text)) {
		var kib uint64
		if n, _ := fmt.Sscanf(line, "MemAvailable: %d kB", &kib); n == 1 {
			return kib << 10, true
		}
	}
	return 0, false
}

// mayBeFreed reports whether the machine has enough huge pages, if others free theirs.
func (c Config) mayBeFreed() bool {
	for _, n := range c.Needs() {
		if _, total, err := FreePages(n.Pages, n.Node); err != nil || total < n.Count() {
			return false
		}
	}
	return true
}

// Short says why the memory is to be of ordinary pages, which the region then takes; nil: it has huge pages.
func (m *Memory) Short() error {
	if m == nil {
		return nil
	}
	return m.short
}

// choosePages decides of what kind a region of Auto is. It takes free huge pages if no memory was allocated before.
func (c *Config) choosePages() (why error, err error) {
	switch {
	case c.Pages != Auto:
		return nil, nil
	case c.Device != "":
		c.Pages = Huge2M
		return nil, nil
	case c.Memory == nil:
		if c.Memory, err = AllocateFree(*c); err != nil {
			return nil, err
		}
	}
	c.Pages = Huge2M
	if c.Memory.Short() != nil {
		c.Pages = Ordinary
	}
	return c.Memory.Short(), nil
}

// errShort says that too few huge pages are free on the region's node.
var errShort = errors.New("too few huge pages are free")

// rounds limits how often reserve tries again. Programs that do not use the lock may take the added
// pages before they are mapped.
const rounds = 50

// reserve adds pages until the parts are allocated.
func (m *Memory) reserve(c Config, l layout) error {
	var err error
	for range rounds {
		added, rerr := m.raise(c.Needs())
		if rerr != nil {
			return rerr
		}
		if err = m.take(c.reserved(l)); !errors.Is(err, errShort) {
			return err
		}
		if !added { // enough pages seem free, but are promised to other processes
			time.Sleep(20 * time.Millisecond)
		}
	}
	return err
}

// raise reserves the huge pages that are not free, and reports whether it added any.
func (m *Memory) raise(needs []Need) (added bool, err error) {
	for _, n := range needs {
		free, _, err := FreePages(n.Pages, n.Node)
		if err != nil {
			return added, err
		}
		if n.Count() <= free {
			continue
		}
		if err := m.held.Add(n.Pages.huge(), n.Node, n.Count()-free); err != nil {
			return added, err
		}
		added = true
	}
	return added, nil
}

// take allocates all parts from free pages, or none. It maps all of them before it populates one:
// the kernel promises a mapping its pages, unless they must be on one node.
func (m *Memory) take(parts []part) (err error) {
	var mapped [][]byte
	defer func() {
		for _, b := range mapped { // the files keep the pages
			err = errors.Join(err, unix.Munmap(b))
		}
		if err != nil {
			err = errors.Join(err, m.closeFiles())
		}
	}()
	for _, p := range parts {
		f, err := p.file()
		if err != nil {
			return err
		}
		m.files = append(m.files, f)
		b, err := p.mmap(f)
		if errors.Is(err, unix.ENOMEM) {
			return fmt.Errorf("%w: %w", errShort, p.explainMap(err))
		}
		if err != nil {
			return p.explainMap(err)
		}
		mapped = append(mapped, b)
	}
	for i, p := range parts {
		if err := p.settle(mapped[i]); err != nil && p.node != nil {
			return fmt.Errorf("%w: %w", errShort, err)
		} else if err != nil {
			return err
		}
	}
	return nil
}

// Files returns the files that another process needs to open the region. It passes them to
// MemoryOf, in this order. The Memory owns them.
func (m *Memory) Files() []*os.File {
	if m == nil {
		return nil
	}
	return m.files
}

// MemoryOf returns memory that another process has allocated. It owns the files from then on, and
// has nothing to give back.
func MemoryOf(files ...*os.File) *Memory { return &Memory{files: files} }

// Added returns how many huge pages were reserved for the memory.
func (m *Memory) Added() uint64 { return m.held.Added() }

// Release closes the files. From then on only open regions keep the memory. A second call does nothing.
func (m *Memory) Release() error {
	if m == nil {
		return nil
	}
	return m.closeFiles()
}

// GiveBack releases the memory. It removes the pages that were reserved for it once they are free,
// after at most two seconds. A second call does nothing.
func (m *Memory) GiveBack() error {
	if m == nil {
		return nil
	}
	return errors.Join(m.closeFiles(), m.held.GiveBack())
}

func (m *Memory) closeFiles() error {
	var errs []error
	for _, f := range m.files {
		errs = append(errs, f.Close())
	}
	m.files = nil
	return errors.Join(errs...)
}

// file returns the memory's nth file if it is that of a part. The caller closes it.
func (m *Memory) file(n int, p part) (*os.File, error) {
	if n >= len(m.files) {
		return nil, fmt.Errorf("map %s: the memory that was allocated for the region has %d parts", p.name, len(m.files))
	}
	if err := p.check(m.files[n]); err != nil {
		return nil, err
	}
	fd, err := unix.FcntlInt(m.files[n].Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", p.name, err)
	}
	return os.NewFile(uintptr(fd), p.name), nil
}

// check checks that a file of another process is the memory of the part. An access beyond its end
// would kill this process.
func (p part) check(f *os.File) error {
	if p.device != "" {
		return p.checkDAX(f)
	}
	var s unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &s); err != nil {
		return fmt.Errorf("look at the memory of %s: %w", p.name, err)
	}
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("look at the memory of %s: %w", p.name, err)
	}
	if s.Type != hugetlbMagic || uint64(s.Bsize) != p.pages.Bytes() || uint64(info.Size()) != p.size {
		return fmt.Errorf("map %s: the memory that was allocated for it is %d bytes in pages of %d KiB, and it wants %d bytes on %v",
			p.name, info.Size(), s.Bsize>>10, p.size, p.pages)
	}
	return nil
}
