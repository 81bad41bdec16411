package umem

import "golang.org/x/sys/unix"

// Frame is a view of bytes in the region: Len bytes at Addr, which need not be the start of their
// frame. It has the layout of struct xdp_desc (include/uapi/linux/if_xdp.h) and contains no
// pointers. A Frame whose Addr is in an extent stands for the whole extent.
//
// The caller to which a Port returned a Frame owns it until it passes it on. A copy of the value is
// not a second owner.
type Frame struct {
	Addr    uint64 // offset from the start of the region, in bytes
	Len     uint32 // bytes
	Options uint32 // low half the kernel's, high half this package's
}

// Option bits. The low sixteen are those of struct xdp_desc. Those above belong to this package,
// and are masked off before the kernel sees a descriptor.
const (
	// More marks a frame whose message continues in the next one (XDP_PKT_CONTD).
	More = 1 << 0
	// Failed marks a frame whose transfer failed; see Frame.Err.
	Failed = 1 << 31

	// KernelOptions are the bits a device may pass to the kernel.
	KernelOptions = 0xffff

	errnoShift = 16
	errnoMask  = 0x7fff
)

// Continues reports whether the next frame continues the message.
func (f Frame) Continues() bool { return f.Options&More != 0 }

// WithError returns the frame marked as failed with the kernel's errno.
func (f Frame) WithError(errno unix.Errno) Frame {
	f.Options = f.Options&KernelOptions | Failed | (uint32(errno)&errnoMask)<<errnoShift
	return f
}

// Err returns why the frame's transfer failed, or nil. It does not allocate for errno values that
// the kernel commonly returns.
func (f Frame) Err() error {
	if f.Options&Failed == 0 {
		return nil
	}
	return f.errno()
}

// errno returns the failure's errno, zero if there was none.
func (f Frame) errno() unix.Errno {
	return unix.Errno(f.Options >> errnoShift & errnoMask)
}

// Whole returns how many leading frames of fs form complete messages: a chain
// of frames with More set counts only together with its last frame.
func Whole(fs []Frame) int {
	for n := len(fs); n > 0; n-- {
		if !fs[n-1].Continues() {
			return n
		}
	}
	return 0
}

// FreeList has free frames, last in, first out: the next frame is the one most likely to be in the
// CPU's cache. The zero value is empty.
//
// A FreeList is for one goroutine. It does not change the owner of the frames: that is the [Holder]
// that took them from the pool.
type FreeList struct{ frames []Frame }

// NewFreeList returns a list of frames. It keeps the slice.
func NewFreeList(frames []Frame) *FreeList { return &FreeList{frames} }

// Len returns how many frames are free.
func (l *FreeList) Len() int { return len(l.frames) }

// Push adds frames.
func (l *FreeList) Push(frames ...Frame) { l.frames = append(l.frames, frames...) }

// Pop moves len(dst) frames to dst, or none if there are fewer, and reports
// whether it did.
func (l *FreeList) Pop(dst []Frame) bool {
	n := len(l.frames) - len(dst)
	if n < 0 {
		return false
	}
	copy(dst, l.frames[n:])
	l.frames = l.frames[:n]
	return true
}

// Top returns the n frames that were pushed last, or all if there are fewer. They stay in the list.
// The slice is valid until the next call of Push or Drop.
func (l *FreeList) Top(n int) []Frame { return l.frames[max(0, len(l.frames)-n):] }

// Drop removes the first used frames of Top(n): those a device has taken.
func (l *FreeList) Drop(n, used int) {
	top := l.Top(n)
	l.frames = l.frames[:len(l.frames)-len(top)+copy(top, top[used:])]
}

// ReleaseExcess gives up to n frames back to the pool from which h took them, and returns how many.
func (l *FreeList) ReleaseExcess(n int, h *Holder) int {
	n = max(0, min(n, len(l.frames)))
	left := len(l.frames) - n
	h.Give(l.frames[left:])
	l.frames = l.frames[:left]
	return n
}

// PacketLen returns how many frames the first packet of frames has and how many
// bytes. It returns 0, 0 if the packet's last frame is not among them.
func PacketLen(frames []Frame) (n int, bytes uint32) {
	for i := range frames {
		bytes += frames[i].Len
		if !frames[i].Continues() {
			return i + 1, bytes
		}
	}
	return 0, 0
}

// Port moves frames to and from a device. Supply and Recv receive or read, Send and Reap transmit or write:
//
//	Supply   posts empty frames, for the device to fill
//	Recv     returns filled frames
//	Send     posts full frames, for the device to empty
//	Reap     returns emptied frames
//
// Each returns how many frames it moved, and does not block, spin, allocate or log. Posted frames
// belong to the device; those beyond the count stay with the caller. Returned frames belong to the
// caller. The slices belong to the caller and are not kept.
//
// Messages of several frames are chained with More. Send takes whole messages only. Recv may
// return the first part of a message in one call and the rest in the next.
//
// A failed frame is returned with Failed set (see Frame.Err), and is never lost.
//
// A Port belongs to one thread at a time, the thread of its Book.
type Port interface {
	Supply(empty []Frame) int
	Recv(dst []Frame) int
	Send(full []Frame) int
	Reap(dst []Frame) int

	// Kick publishes what Supply and Send queued, and wakes the device, with a system call only if
	// the device asked for one. An error means that the device is gone or refuses; the frames stay
	// where they are.
	Kick() error

	// FD returns a descriptor that polls readable when Recv or Reap may have frames.
	FD() int

	// Limits returns what the port accepts.
	Limits() Limits

	// Close stops the device and gives every frame that it holds to the pool. A second call does nothing.
	Close() error
}

// Limits are the most that a port takes.
type Limits struct {
	Message uint64 // bytes in one message
	Frames  int    // frames chained in one message
	Supply  int    // frames the device holds to be filled; 0: the port does not receive
	Send    int    // frames the device holds to be drained; 0: the port does not send
}
