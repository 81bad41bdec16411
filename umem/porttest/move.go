package porttest

import (
	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/umem"
)

// move delivers sent messages to the peer until one has to wait.
func (e *End) move() {
	for e.sent.count > 0 {
		frames, bytes := e.oldest()
		errno := e.refuse(frames, bytes)
		if errno == 0 && !e.peer.fits(bytes) {
			return
		}
		if errno == 0 {
			e.deliver(frames)
		}
		e.retire(frames, errno)
	}
}

// oldest returns the size of the message at the head of the queue.
func (e *End) oldest() (frames int, bytes uint64) {
	for more := true; more; frames++ {
		f := e.sent.peek(frames)
		bytes += uint64(f.Len)
		more = f.Continues()
	}
	return frames, bytes
}

// refuse returns why a message can never be delivered.
func (e *End) refuse(frames int, bytes uint64) unix.Errno {
	switch {
	case e.peer.closed:
		return unix.ENOTCONN
	case frames > e.config.Frames || bytes > e.config.Message:
		return unix.EMSGSIZE
	}
	for i := range frames {
		if f := *e.sent.peek(i); !e.inside(f) {
			return unix.EINVAL
		}
	}
	return 0
}

// inside reports whether the view is in one frame.
func (e *End) inside(f umem.Frame) bool {
	start, room := e.region.Start(f)
	return f.Addr+uint64(f.Len) <= start+room
}

// landing returns how many bytes a supplied frame has room for.
func (e *End) landing() uint64 { return uint64(e.region.FrameSize() - e.config.Landing) }

// fits reports whether enough frames are supplied for a message.
func (e *End) fits(bytes uint64) bool {
	return uint64(e.supplied.count)*e.landing() >= max(bytes, 1)
}

// deliver copies the message at the head of the queue into the peer's frames.
func (e *End) deliver(frames int) {
	into := e.peer.land(umem.Frame{})
	for i := range frames {
		rest := e.region.Bytes(*e.sent.peek(i))
		for len(rest) > 0 {
			if uint64(into.Len) == e.landing() {
				into = e.peer.land(into)
			}
			n := copy(e.region.At(into.Addr+uint64(into.Len), e.landing()-uint64(into.Len)), rest)
			into.Len += uint32(n)
			rest = rest[n:]
		}
	}
	e.peer.full.push(into)
}

// land passes on the filled frame, if any, and begins the next one of its message.
func (e *End) land(filled umem.Frame) umem.Frame {
	if filled.Len > 0 {
		filled.Options |= umem.More
		e.full.push(filled)
	}
	start, _ := e.region.Start(e.supplied.pop())
	return umem.Frame{Addr: start + uint64(e.config.Landing)}
}

// retire makes the frames at the head of the queue ready to be reaped.
func (e *End) retire(frames int, errno unix.Errno) {
	for range frames {
		f := e.sent.pop()
		if errno != 0 {
			f = f.WithError(errno)
		}
		e.drained.push(f)
	}
}
