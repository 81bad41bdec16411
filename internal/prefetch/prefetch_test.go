package prefetch

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestBeginDoesNotFault: Begin does not fault at the end of a mapping, on an unreadable mapping, or for nil.
func TestBeginDoesNotFault(t *testing.T) {
	page := unix.Getpagesize()
	b, err := unix.Mmap(-1, 0, 2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	testenv.Must(t, err)
	defer unix.Munmap(b)
	testenv.Must(t, unix.Mprotect(b[page:], unix.PROT_NONE))
	Begin(&b[page-1])
	Begin(&b[page])
	Begin(nil)
}

// TestSpanDoesNotFault: Span does not fault there either, nor for a range that wraps around.
func TestSpanDoesNotFault(t *testing.T) {
	page := unix.Getpagesize()
	b, err := unix.Mmap(-1, 0, 2*page, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON)
	testenv.Must(t, err)
	defer unix.Munmap(b)
	Span(&b[0], uint32(4*page))
	Span(&b[page-1], 1)
	Span(&b[0], 0)
	Span(nil, 100)
	if n := testing.AllocsPerRun(10, func() { Span(&b[0], 1500) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
