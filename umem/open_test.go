package umem

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/align"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// openHuge opens a region on 2 MiB pages that it reserves for the test.
func openHuge(t *testing.T, c Config) *Region {
	t.Helper()
	testenv.HugePages(t, c.Size+align.Up(c.Control, hugePage))
	return open(t, c)
}

// hugePage is the size of the default page.
const hugePage = 2 << 20

func TestOpenHugePages(t *testing.T) {
	testenv.Leaks(t)
	r := openHuge(t, Config{Size: 5 << 20, Control: 1, ExtentSize: 1 << 20, Extents: 2})
	if r.Size() != 6<<20 || r.Pages() != Huge2M || r.FrameSize() != 4096 || r.Extents() != 2 || r.ExtentSize() != 1<<20 {
		t.Errorf("region of %d bytes on %v, frames of %d, %d extents of %d", r.Size(), r.Pages(), r.FrameSize(), r.Extents(), r.ExtentSize())
	}
	checkMemory(t, r, "ht")
	checkControl(t, r)
}

func TestOpenOrdinaryPages(t *testing.T) {
	testenv.OnMachine(t, "account of mapped memory")
	testenv.Leaks(t)
	r := openOrdinary(t, Config{Size: 3<<20 + 1, FrameSize: 2048, Control: 5 << 20})
	if r.Size() != 3<<20+uint64(os.Getpagesize()) || r.Pages() != Ordinary || r.FrameSize() != 2048 {
		t.Errorf("region of %d bytes on %v, frames of %d", r.Size(), r.Pages(), r.FrameSize())
	}
	checkMemory(t, r, "lo")
	checkControl(t, r)
}

// TestOpenGiantPages: a region opens on a page of 1 GiB. The machine may have none, or no
// contiguous memory of that size any longer. Open reports both as errors.
func TestOpenGiantPages(t *testing.T) {
	testenv.Long(t, "pages of 1 GiB take a while to find")
	testenv.Root(t)
	testenv.Leaks(t)
	c := Config{Size: 1, Pages: Huge1G, Control: 4096}
	if !testenv.HasGiantPages() {
		noGiantPages(t, c)
		return
	}
	var err error
	c.Memory, err = Allocate(c)
	if errors.Is(err, unix.ENOMEM) {
		wantError(t, err, "allocate region: reserve 1 1 GiB huge pages", "found memory for only 0", "reserve them at boot")
		return
	}
	testenv.Must(t, err)
	t.Cleanup(func() {
		testenv.Check(t, c.Memory.GiveBack())
	})
	r := open(t, c)
	if r.Size() != 1<<30 || len(r.Buffers()) != 1 {
		t.Errorf("region of %d bytes in %d buffers", r.Size(), len(r.Buffers()))
	}
	checkMemory(t, r, "ht")
	checkControl(t, r)
}

// noGiantPages checks the error on a machine without pages of 1 GiB.
func noGiantPages(t *testing.T, c Config) {
	t.Helper()
	_, err1 := Open(c)
	_, err2 := Allocate(c)
	_, _, err3 := FreePages(Huge1G, -1)
	for _, err := range []error{err1, err2, err3} {
		wantError(t, err, "this machine has no 1 GiB huge pages", "pdpe1gb", "use pages of 2 MiB")
		if !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%v is not ErrUnsupported", err)
		}
	}
}

// TestWithoutGiantPages: the tests of such pages pass as on a machine without them.
func TestWithoutGiantPages(t *testing.T) {
	testenv.WithoutGiantPages(t, "TestOpenGiantPages", "TestAllocateTooMuch")
}

// checkMemory checks that all of the region is writable and populated, and is mapped with the flags
// that every region has and one more.
func checkMemory(t *testing.T, r *Region, more string) {
	t.Helper()
	if uint64(len(r.Data())) != r.Size() {
		t.Fatalf("%d bytes of data, size is %d", len(r.Data()), r.Size())
	}
	for addr := uint64(0); addr < r.Size(); addr += uint64(r.FrameSize()) {
		r.Bytes(Frame{Addr: addr, Len: 1})[0] = 1
	}
	m := mappingOf(t, r.Data())
	for _, flag := range []string{"sh", "dc", "dd", more} {
		if !slices.Contains(m.flags, flag) {
			t.Errorf("the region is mapped with flags %v, without %s", m.flags, flag)
		}
	}
	if total := slices.Concat(r.Buffers()...); len(total) != len(r.Data()) {
		t.Errorf("the buffers have %d bytes of %d", len(total), len(r.Data()))
	}
}

// checkControl checks that the control area is separate from the data.
func checkControl(t *testing.T, r *Region) {
	t.Helper()
	if len(r.Control()) == 0 || len(r.Control())%hugePage != 0 {
		t.Fatalf("control area of %d bytes", len(r.Control()))
	}
	data, control := mappingOf(t, r.Data()), mappingOf(t, r.Control())
	if data.from < control.to && control.from < data.to {
		t.Errorf("the control area at %x-%x lies in the data at %x-%x", control.from, control.to, data.from, data.to)
	}
	part := r.At(0, min(r.Size(), 4<<20))
	before := bytes.Clone(part)
	for i := range r.Control() {
		r.Control()[i] = 0xEE
	}
	if !bytes.Equal(before, part) {
		t.Error("writing the control area changed the data")
	}
	for _, flag := range []string{"dc", "dd"} {
		if !slices.Contains(control.flags, flag) {
			t.Errorf("the control area is mapped with flags %v, without %s", control.flags, flag)
		}
	}
}

// mapping is one entry of /proc/self/smaps.
type mapping struct {
	from, to uint64
	flags    []string
}

// mappingOf finds the mapping that contains the start of b.
func mappingOf(t *testing.T, b []byte) mapping {
	t.Helper()
	text, err := os.ReadFile("/proc/self/smaps")
	testenv.Must(t, err)
	addr, err := strconv.ParseUint(fmt.Sprintf("%p", &b[0]), 0, 64)
	testenv.Must(t, err)
	var m mapping
	for line := range strings.Lines(string(text)) {
		var from, to uint64
		if n, _ := fmt.Sscanf(line, "%x-%x ", &from, &to); n == 2 {
			m.from, m.to = from, to
		}
		if flags, ok := strings.CutPrefix(line, "VmFlags:"); ok && m.from <= addr && addr < m.to {
			m.flags = strings.Fields(flags)
			return m
		}
	}
	t.Fatalf("no mapping at %#x", addr)
	return m
}

func TestPlacement(t *testing.T) {
	testenv.OnMachine(t, "NUMA nodes")
	node := 0
	for _, pages := range []PageSize{Huge2M, Ordinary} {
		t.Run(pages.String(), func(t *testing.T) {
			if pages != Ordinary {
				testenv.HugePages(t, 4<<20)
			}
			r := open(t, Config{Size: 4 << 20, Pages: pages, Node: &node})
			where, err := r.Placement()
			testenv.Must(t, err)
			if len(where) != 1 || where[0] != r.Size() {
				t.Errorf("the region lies on %v, want all %d bytes on node 0", where, r.Size())
			}
		})
	}
}

func TestOpenOnMissingNode(t *testing.T) {
	testenv.OnMachine(t, "NUMA nodes")
	testenv.Leaks(t)
	for _, node := range []int{-1, 700, 1023, 1024, math.MaxInt} {
		_, err := Open(Config{Size: 2 << 20, Pages: Ordinary, Node: &node})
		wantError(t, err, "open region", fmt.Sprintf("NUMA node %d", node), "has_memory")
		if !errors.Is(err, unix.EINVAL) {
			t.Errorf("node %d: %v is not EINVAL", node, err)
		}
	}
}

// TestOpenWithoutHugePages: if more pages are requested than any machine has, the command in the
// error has the right number.
func TestOpenWithoutHugePages(t *testing.T) {
	testenv.OnMachine(t, "huge pages")
	testenv.Leaks(t)
	const need = 1 << 40 / hugePage
	command := regexp.MustCompile(`run: echo (\d+) > /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages`)
	for tries := 0; ; tries++ {
		free, total, err := FreePages(Huge2M, -1)
		testenv.Must(t, err)
		_, err = Open(Config{Size: 1 << 40})
		wantError(t, err, "open region", "1099511627776 bytes", "524288 2 MiB huge pages needed")
		if !errors.Is(err, unix.ENOMEM) {
			t.Errorf("%v is not ENOMEM", err)
		}
		m := command.FindStringSubmatch(err.Error())
		if m == nil {
			t.Fatalf("error %q names no command", err)
		}
		if m[1] == fmt.Sprint(total+need-free) {
			return
		}
		if tries == 5 { // other processes may reserve pages in between, but not each time
			t.Fatalf("error %q: want %d, with %d pages of which %d are free", err, total+need-free, total, free)
		}
	}
}

func TestOpenErrors(t *testing.T) {
	testenv.Leaks(t)
	for _, c := range []struct {
		config Config
		want   []string
	}{
		{Config{}, []string{"open region: region size 0"}},
		{Config{Size: 1 << 20, FrameSize: 512}, []string{"open region: frame size 512"}},
		{Config{Size: 1 << 20, Pages: Ordinary, Control: 1 << 50}, []string{"open region:", "1125899906842624 bytes"}},
	} {
		_, err := Open(c.config)
		wantError(t, err, c.want...)
	}
}

func TestCloseWhileRegistered(t *testing.T) {
	r := openOrdinary(t, Config{Size: 2 << 20})
	a, b := r.Register("AF_XDP UMEM of eth0"), r.Register("io_uring of disk")
	if got := r.Registered(); !slices.Equal(got, []string{"AF_XDP UMEM of eth0", "io_uring of disk"}) {
		t.Errorf("registered are %q", got)
	}
	wantError(t, r.Close(), "close region", "AF_XDP UMEM of eth0, io_uring of disk", "close those first")
	r.Bytes(Frame{Len: 4096})[4095] = 1 // still mapped
	a.Release()
	a.Release()
	wantError(t, r.Close(), "still registered with io_uring of disk;")
	b.Release()
	(*Registration)(nil).Release()
	testenv.Must(t, r.Close())
	if r.Data() != nil || r.Control() != nil {
		t.Error("data or control outlives Close")
	}
	testenv.Checkf(t, r.Close(), "Close again")
}

// TestBytesOutside: Bytes panics outside the region.
func TestBytesOutside(t *testing.T) {
	r := openOrdinary(t, Config{Size: 2 << 20})
	for _, f := range []Frame{{Addr: 2 << 20, Len: 1}, {Addr: 2<<20 - 1, Len: 2}, {Addr: math.MaxUint64, Len: 2}, {Addr: 1 << 63, Len: 0}} {
		mustPanic(t, "", func() { r.Bytes(f) })
	}
	if b := r.Bytes(Frame{Addr: 100, Len: 10}); len(b) != 10 || cap(b) != 10 {
		t.Errorf("a view of 10 bytes has length %d, capacity %d", len(b), cap(b))
	}
}

// mustPanic checks that f panics with that text.
func mustPanic(t *testing.T, text string, f func()) {
	t.Helper()
	defer func() {
		t.Helper()
		p := recover()
		if p == nil {
			t.Errorf("no panic, want one with %q", text)
		} else if !strings.Contains(fmt.Sprint(p), text) {
			t.Errorf("panic %q, want one with %q", p, text)
		}
	}()
	f()
}
