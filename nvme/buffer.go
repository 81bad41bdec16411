package nvme

import "fmt"

// bufferShift is log2 of what the region's pieces measure, all but the last one:
// 1 GiB, the most io_uring registers as one buffer (io_uring/rsrc.c).
const bufferShift = 30

// bufferOf is the number of the registered buffer that an address in the region
// lies in.
func bufferOf(addr uint64) uint16 { return uint16(addr >> bufferShift) }

// sameBuffer reports whether n bytes from addr lie in one registered buffer.
func sameBuffer(addr, n uint64) bool { return n == 0 || bufferOf(addr) == bufferOf(addr+n-1) }

// maxBuffers is the most buffers io_uring takes: IORING_MAX_REG_BUFFERS in
// io_uring/rsrc.c.
const maxBuffers = 1 << 14

// checkBuffers makes sure that bufferOf is right for the region's pieces.
func checkBuffers(buffers [][]byte) error {
	if len(buffers) > maxBuffers {
		return fmt.Errorf("the region is %d buffers of 1 GiB; io_uring takes %d: use a smaller region", len(buffers), maxBuffers)
	}
	for i, b := range buffers {
		if len(b) > 1<<bufferShift || i < len(buffers)-1 && len(b) != 1<<bufferShift {
			return fmt.Errorf("buffer %d of the region has %d bytes, not 1 GiB", i, len(b))
		}
	}
	return nil
}
