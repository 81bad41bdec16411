package umem

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestDAX: a region on a device has its frames and extents there and only there, one region at a time,
// and what is in it stays.
func TestDAX(t *testing.T) {
	labenv.Guest(t)
	testenv.Leaks(t)
	device := labenv.DAX(t)
	c := Config{Size: 32 << 20, ExtentSize: 1 << 20, Extents: 4, Device: device}
	if n := c.Needs(); len(n) != 0 {
		t.Errorf("it needs huge pages: %v", n)
	}
	r := open(t, c)
	checkMemory(t, r, "sh")
	if at := fmt.Sprintf("%s\n", device); !bytes.Contains(mapsLine(t, r.Data()), []byte(at)) {
		t.Errorf("the region is mapped from\n%s", mapsLine(t, r.Data()))
	}
	_, err := Open(c)
	wantError(t, err, device, "another process")
	copy(r.Data()[3<<20:], "stays")
	testenv.Must(t, r.Close())
	again := open(t, c)
	if !bytes.HasPrefix(again.Data()[3<<20:], []byte("stays")) {
		t.Error("what was in the memory is gone")
	}
}

// TestDAXInherited: a process that may open the device passes it on, and the region keeps it from others.
func TestDAXInherited(t *testing.T) {
	labenv.Guest(t)
	testenv.Leaks(t)
	testenv.HugePages(t, 4<<20)
	c := Config{Size: 8 << 20, Device: labenv.DAX(t), Control: 2 << 20}
	m, err := AllocateFree(c)
	testenv.Must(t, err)
	var files []*os.File
	for _, f := range m.Files() {
		fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		testenv.Must(t, err)
		files = append(files, os.NewFile(uintptr(fd), f.Name()))
	}
	testenv.Must(t, m.Release())
	other := c
	c.Memory = MemoryOf(files...)
	r := open(t, c)
	_, err = AllocateFree(other)
	wantError(t, err, c.Device, "another process")
	testenv.Must(t, r.Close())
	if m, err = AllocateFree(other); err != nil {
		t.Fatal(err)
	}
	testenv.Check(t, m.GiveBack())
}

// TestDAXRefused: what is no such device, or has too little room, is refused with what to do.
func TestDAXRefused(t *testing.T) {
	labenv.Guest(t)
	testenv.Leaks(t)
	device, node := labenv.DAX(t), 5
	for _, one := range []struct {
		c     Config
		parts []string
	}{
		{Config{Size: 8 << 20, Device: "/dev/null"}, []string{"/dev/null", "device-DAX", "ndctl"}},
		{Config{Size: 8 << 20, Device: t.TempDir()}, []string{"is a directory"}},
		{Config{Size: 8 << 20, Device: "/dev/dax9.9"}, []string{"/dev/dax9.9", "no such file"}},
		{Config{Size: 1 << 40, Device: device}, []string{device, "region.size"}},
		{Config{Size: 8 << 20, Device: device, Pages: Ordinary}, []string{device, "ordinary"}},
		{Config{Size: 8 << 20, Device: device, Node: &node}, []string{device, "node 5", "region.node"}},
	} {
		_, err := Open(one.c)
		wantError(t, err, one.parts...)
	}
}

// mapsLine returns the line of /proc/self/maps for memory.
func mapsLine(t *testing.T, b []byte) []byte {
	t.Helper()
	all, err := os.ReadFile("/proc/self/maps")
	testenv.Must(t, err)
	at := []byte(strings.TrimPrefix(fmt.Sprintf("%p-", b), "0x"))
	for line := range bytes.Lines(all) {
		if bytes.HasPrefix(line, at) {
			return line
		}
	}
	return nil
}
