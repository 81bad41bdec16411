package umem

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
