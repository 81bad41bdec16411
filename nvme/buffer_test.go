package nvme

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

const gib = 1 << 30

// piecesOfMemory returns pieces with these lengths. The memory is mapped and never accessed.
func piecesOfMemory(t *testing.T, lengths ...uint64) (all [][]byte) {
	t.Helper()
	mem, err := unix.Mmap(-1, 0, gib, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	testenv.Must(t, err)
	t.Cleanup(func() { _ = unix.Munmap(mem) })
	for _, n := range lengths {
		all = append(all, mem[:n])
	}
	return all
}

// TestBufferNumbers: the number of a buffer is right in regions larger than a registered buffer, at and around
// its ends, up to beyond 32 bits, and in slices behind the frames and extents.
func TestBufferNumbers(t *testing.T) {
	large := make([]uint64, 1024)
	for i := range large {
		large[i] = gib
	}
	for _, c := range []struct {
		lengths []uint64
		addr, n uint64
		buffer  uint16
		same    bool
	}{
		{large, 0, 4096, 0, true},
		{large, gib - 4096, 4096, 0, true},
		{large, gib - 4096, 4097, 0, false},
		{large, gib, 1, 1, true},
		{large, gib - 1, 1, 0, true},
		{large, gib - 1, 2, 0, false},
		{large, 4*gib - 4096, 4096, 3, true},
		{large, 4 * gib, gib, 4, true},
		{large, 4*gib + 4096, gib, 4, false},
		{large, 1023 * gib, gib, 1023, true},
		{large, gib, 0, 1, true},
		{[]uint64{8192}, 4096, 4096, 0, true},
		{[]uint64{8192, 4096, 12288, 4096}, 4096, 4096, 0, true},
		{[]uint64{8192, 4096, 12288, 4096}, 4096, 4097, 0, false},
		{[]uint64{8192, 4096, 12288, 4096}, 8192, 4096, 1, true},
		{[]uint64{8192, 4096, 12288, 4096}, 12288, 12288, 2, true},
		{[]uint64{8192, 4096, 12288, 4096}, 24575, 2, 2, false},
		{[]uint64{8192, 4096, 12288, 4096}, 24576, 4096, 3, true},
		{[]uint64{gib, 4096, 4096}, gib, 4096, 1, true},
		{[]uint64{gib, 4096, 4096}, gib + 4096, 4096, 2, true},
		{[]uint64{gib, 4096, gib, gib, 4096}, 2*gib + 4096, gib, 3, true},
		{[]uint64{gib, 4096, gib, gib, 4096}, 3*gib + 4096, 1, 4, true},
	} {
		b := numberBuffers(piecesOfMemory(t, c.lengths...))
		if got := b.of(c.addr); got != c.buffer {
			t.Errorf("%d pieces: %#x is in buffer %d, want %d", len(c.lengths), c.addr, got, c.buffer)
		}
		if got := b.same(c.addr, c.n); got != c.same {
			t.Errorf("%d pieces: %#x bytes at %#x in one buffer: %t, want %t", len(c.lengths), c.n, c.addr, got, c.same)
		}
	}
}

// TestCheckBuffers: a region has at most as many buffers as io_uring takes.
func TestCheckBuffers(t *testing.T) {
	testenv.Check(t, checkBuffers(make([][]byte, maxBuffers)))
	if checkBuffers(make([][]byte, maxBuffers+1)) == nil {
		t.Errorf("%d buffers are accepted", maxBuffers+1)
	}
}
