package porttest

import (
	"fmt"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/umem"
)

// Slots is how many messages a device that stores must keep apart.
const Slots = 256

// Link is a device to test: two ports with a connection between them, and what the suite must know
// to use it. The region must have frames for everything that both ports can hold at once and
// [Spare] more. Otherwise it must be at rest.
//
// Everything on a Link, including its ports, belongs to the test's thread.
type Link struct {
	Worker   *umem.Holder // the holder from which ports take frames, and to which they return them
	Sender   umem.Port    // its Send and Reap are tested
	Receiver umem.Port    // its Supply and Recv are tested; may be the Sender

	// Reopen opens closed ports again, on the same device and region, and sets Sender and Receiver
	// again. It must not wait longer than Timeout.
	Reopen func(t testing.TB)

	Header  []byte // the beginning of every message, such as an Ethernet header
	Min     int    // bytes of the smallest message, Header included; at least 8 beyond it
	Max     int    // bytes of the largest message to try
	Unit    int    // all lengths and offsets are multiples of this many bytes; default 1
	Offset  int    // where in its frame a view begins, in bytes; a multiple of Unit
	Room    int    // bytes of a message that a sent frame may carry; default all after Offset
	Landing int    // bytes of a message that a supplied frame takes up; default Room
	Scratch int    // bytes in front of a received view that the device may write
	Own     int    // frames that the ports took from the pool for their own use when they were opened
	Window  int    // messages that the device carries at once without loss; default what Limits allow

	// Stored says that messages stay in the device. Supplied frames are reads of messages that were
	// sent and reaped before, and may come back in any order.
	Stored bool

	// Prepare, if set, completes a frame for the bytes from offset of the message of the given slot
	// (below Slots). It is called before the frame is sent. On a device that stores, it is also
	// called before the frame is supplied for a read.
	Prepare func(slot, offset int, f *umem.Frame)

	// Spoil, if set, changes a prepared frame so that its transfer must fail.
	Spoil func(f *umem.Frame)

	// Noisy says that messages of other senders, without Header, may arrive too.
	Noisy bool

	// SilentReap says that FD does not report frames to be reaped, because the kernel has no such event.
	SilentReap bool

	// Swaps says that messages that arrived while the receiver had no frames may be returned in
	// another order.
	Swaps bool

	// Timeout is how long any one step may take; default five seconds.
	Timeout time.Duration

	chain   int    // the largest number of frames in one of the suite's messages
	noise   []byte // source of the messages' bytes
	scratch []byte // room for one message
}

// Spare is how many frames the suite needs beyond those that the ports hold.
const Spare = 64

func (l *Link) region() *umem.Region { return l.Worker.Book().Region() }

// complete sets defaults and checks that the Link is consistent.
func (l *Link) complete() error {
	l.setDefaults()
	switch {
	case l.Reopen == nil:
		return fmt.Errorf("link: Reopen is not set")
	case l.Min < len(l.Header)+8:
		return fmt.Errorf("link: Min %d has no room for %d bytes of header and 8 of sequence number", l.Min, len(l.Header))
	case l.Min > l.Room:
		return fmt.Errorf("link: the smallest message of %d bytes does not fit into one frame, which carries %d", l.Min, l.Room)
	case l.Max < l.Min || l.Min%l.Unit != 0 || l.Max%l.Unit != 0 || l.Offset%l.Unit != 0:
		return fmt.Errorf("link: Min %d, Max %d and Offset %d must be multiples of Unit %d, and in order", l.Min, l.Max, l.Offset, l.Unit)
	case l.Offset+max(l.Room, l.Unit) > int(l.region().FrameSize()):
		return fmt.Errorf("link: %d bytes from offset %d leave a frame of %d", l.Room, l.Offset, l.region().FrameSize())
	case l.Landing <= 0:
		return fmt.Errorf("link: nothing lands in %d bytes", l.Landing)
	}
	return l.checkLimits()
}

func (l *Link) setDefaults() {
	l.Unit = max(l.Unit, 1)
	if l.Room == 0 {
		l.Room = (int(l.region().FrameSize()) - l.Offset) / l.Unit * l.Unit
	}
	if l.Landing == 0 {
		l.Landing = l.Room
	}
	if l.Timeout == 0 {
		l.Timeout = 5 * time.Second
	}
	l.makeNoise()
}

// checkLimits compares the ports' limits with what the Link says.
func (l *Link) checkLimits() error {
	out, in := l.Sender.Limits(), l.Receiver.Limits()
	if out.Send < 1 || in.Supply < 1 {
		return fmt.Errorf("limits: the sender holds %d frames, the receiver %d: want both positive", out.Send, in.Supply)
	}
	if fewest := pieces(l.Max, l.Room); uint64(l.Max) > out.Message || fewest > out.Frames {
		return fmt.Errorf("limits: messages to try have up to %d bytes in %d frames, the sender takes %d bytes in %d",
			l.Max, fewest, out.Message, out.Frames)
	}
	l.chain = min(pieces(l.Max, l.Room)+1, out.Frames, l.Max/l.Unit)
	if l.chain > out.Send || l.landing(l.Max) > in.Supply {
		return fmt.Errorf("limits: a message of %d bytes does not fit into %d sent or %d supplied frames", l.Max, out.Send, in.Supply)
	}
	if l.Window == 0 {
		l.Window = Slots
	}
	l.Window = min(l.Window, out.Send/l.chain, in.Supply/l.landing(l.Max), Slots)
	return nil
}

// landing is how many supplied frames a message of the size takes up at most.
func (l *Link) landing(size int) int {
	if l.Stored {
		return l.chain
	}
	return pieces(size, l.Landing)
}

// pieces is how many pieces of at most the given size n bytes need.
func pieces(n, size int) int { return (n + size - 1) / size }
