package nvme

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestBufferNumbers: bufferOf and sameBuffer are right in regions larger than a registered buffer,
// at and around its ends, up to beyond 32 bits.
func TestBufferNumbers(t *testing.T) {
	const gib = 1 << 30
	for _, c := range []struct {
		addr, n uint64
		buffer  uint16
		same    bool
	}{
		{0, 4096, 0, true},
		{gib - 4096, 4096, 0, true},
		{gib - 4096, 4097, 0, false},
		{gib, 1, 1, true},
		{gib - 1, 1, 0, true},
		{gib - 1, 2, 0, false},
		{4*gib - 4096, 4096, 3, true},
		{4 * gib, gib, 4, true},
		{4*gib + 4096, gib, 4, false},
		{1023 * gib, gib, 1023, true},
		{gib, 0, 1, true},
	} {
		if got := bufferOf(c.addr); got != c.buffer {
			t.Errorf("%#x is in buffer %d, want %d", c.addr, got, c.buffer)
		}
		if got := sameBuffer(c.addr, c.n); got != c.same {
			t.Errorf("%#x bytes at %#x in one buffer: %t, want %t", c.n, c.addr, got, c.same)
		}
	}
}

// TestCheckBuffers: checkBuffers refuses pieces for which bufferOf would be wrong. The memory is
// mapped and never accessed.
func TestCheckBuffers(t *testing.T) {
	const gib = 1 << 30
	mem, err := unix.Mmap(-1, 0, gib+4096, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mem)
	whole, small, large := mem[:gib], mem[:4096], mem
	for _, c := range []struct {
		buffers [][]byte
		good    bool
	}{
		{[][]byte{small}, true},
		{[][]byte{whole}, true},
		{[][]byte{whole, whole, small}, true},
		{[][]byte{small, whole}, false},
		{[][]byte{large}, false},
		{make([][]byte, maxBuffers+1), false},
	} {
		if err := checkBuffers(c.buffers); (err == nil) != c.good {
			t.Errorf("%d buffers, the first of %d bytes: %v", len(c.buffers), len(c.buffers[0]), err)
		}
	}
}
