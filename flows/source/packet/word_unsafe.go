package packet

import (
	"sync/atomic"
	"unsafe"
)

// blockStatus is the offset of block_status in the header of a block.
const blockStatus = 8

// owner returns the word that says who owns a block: the kernel, or user space if TP_STATUS_USER is
// set. The kernel sets it after it has written the block (prb_flush_block in net/packet/af_packet.c),
// and we clear it once the disk is done with the block. block must be a block of the mapped ring.
func owner(block []byte) *atomic.Uint32 {
	_ = block[blockStatus+3]
	return (*atomic.Uint32)(unsafe.Pointer(&block[blockStatus]))
}
