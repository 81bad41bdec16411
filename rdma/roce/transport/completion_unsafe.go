package transport

import (
	"unsafe"

	"github.com/unifiedd/unifiedd/rdma"
)

// immediateAt is the offset of imm_data in struct ibv_wc, whose layout rdma.WorkCompletion has.
const immediateAt = 24

// setImmediate gives a completion the bytes that Immediate and Invalidated return, which only
// providers set and which have no name outside of package rdma. A test holds the offset to what Immediate returns.
func setImmediate(c *rdma.WorkCompletion, b [4]byte) {
	*(*[4]byte)(unsafe.Add(unsafe.Pointer(c), immediateAt)) = b
}
