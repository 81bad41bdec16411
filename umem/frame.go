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
