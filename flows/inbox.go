package flows

import (
	"context"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/device"
	"github.com/unifiedd/unifiedd/flows/stream"
	"github.com/unifiedd/unifiedd/internal/counter"
	"github.com/unifiedd/unifiedd/rdma/connect"
	"github.com/unifiedd/unifiedd/umem"
)

// inbox is the end of a flow at which messages of RDMA clients arrive. It belongs to the
// worker's thread, but for what starts and ends it.
type inbox struct {
	device   *device.RDMA
	receiver *stream.Receiver
	listener *connect.Listener
	secure   bool // connections are TLS
	method   config.Method
	do       stream.Doer

	spare  *umem.FreeList // frames, or extents, that messages may land in
	total  int            // how many there are of them
	each   int            // of the region's frames one of them has
	least  int            // and how many it needs
	long   bool           // they are extents
	hands  *umem.Holder   // the worker's
	window int            // of those, how many are to be receives
	posted int            // how many the receiver has
	buf    [burst]umem.Frame
	count  int // messages in it, which are not handed on yet

	ending  atomic.Bool // no more room is made for messages
	came    uint64      // when the flow ends: messages until now,
	since   uint64      // and the round in which the last came
	packets counter.Counter
	bytes   counter.Counter

	serving service
}

// begin lets clients connect.
func (b *inbox) begin() error {
	b.serving.begin(func(ctx context.Context) error { return b.receiver.Serve(ctx, b.listener, b.do) })
	return nil
}

// take receives messages where none wait to be handed on, at most most, and reports
// whether there may be more. first is how many the buffer had before.
func (b *inbox) take(most int) (first int, more bool) {
	first = b.count
	want := min(len(b.buf)-first, most)
	got := b.receiver.Recv(b.buf[first : first+want])
	b.count += got
	b.posted -= got
	bytes := uint64(0)
	for _, f := range b.buf[first:b.count] {
		bytes += uint64(f.Len)
	}
	if got > 0 {
		b.packets.Add(uint64(got))
		b.bytes.Add(bytes)
	}
	return first, got > 0 && got == want
}

// drop removes the first n messages of the buffer, which are handed on.
func (b *inbox) drop(n int) { b.count = copy(b.buf[:], b.buf[n:b.count]) }

// away is how many frames of messages are neither free nor the receiver's.
func (b *inbox) away() int { return b.total - b.spare.Len() - b.posted }

// frames is how many of the region's so many of the inbox's are, which may be extents.
func (b *inbox) frames(n int) int { return n * b.each }

// supply makes room for messages.
func (b *inbox) supply() {
	for !b.ending.Load() && b.posted < b.window {
		n := min(b.spare.Len(), b.window-b.posted, 2*burst)
		used := b.receiver.Supply(b.spare.Top(n))
		b.spare.Drop(n, used)
		if b.posted += used; used == 0 || used < n {
			return
		}
	}
}

// quiet reports, of a flow that ends, whether no more messages come: a whole round of
// the worker has brought none.
func (b *inbox) quiet(rounds uint64) bool {
	if now := b.packets.Load(); now != b.came || b.since == 0 || b.count > 0 {
		b.came, b.since = now, rounds
	}
	return rounds >= b.since+2
}

// halt gives clients no more credits.
func (b *inbox) halt() error {
	b.ending.Store(true)
	return nil
}

func (b *inbox) done() bool { return false }

func (b *inbox) traffic() (packets, bytes uint64) { return b.packets.Load(), b.bytes.Load() }

// check asks after the device, and whether clients are served.
func (b *inbox) check() (waits, ends error) {
	if err := b.serving.check(); err != nil {
		return nil, err
	}
	return b.device.Check()
}

func (b *inbox) FDs(dst []unix.PollFd) []unix.PollFd {
	if fd := b.receiver.FD(); fd >= 0 {
		dst = append(dst, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
	return dst
}

// announce is what the log says of the clients' end.
func (b *inbox) announce() []any {
	a := []any{"device", b.device.Name, "listens", b.listener.Addr().String(), "window", b.window, "method", string(b.method)}
	if !b.secure {
		a = append(a, "plain", device.PlaintextWarning(b.listener.Addr()))
	}
	return a
}
