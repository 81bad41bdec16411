package packet

import (
	"errors"
	"math"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/device"
	"github.com/unifiedd/unifiedd/flows/layout"
	"github.com/unifiedd/unifiedd/flows/pipeline"
	"github.com/unifiedd/unifiedd/internal/counter"
	"github.com/unifiedd/unifiedd/internal/linktype"
)

var _ pipeline.Source = (*Source)(nil)

// Source receives packets from a packet socket. Its frames are the blocks of the socket's ring.
type Source struct {
	from    config.From
	keep    uint32 // most bytes of a packet that the kernel copies
	link    linktype.Type
	socket  *socket
	ring    layout.Ring
	netlink *netlink.Handle // in the interface's namespace
	node    int
	rewrite rewriter
	pinned  bool   // the disk pins each block when it writes it
	why     string // of this engine, if the flow may choose
	next    int    // the block that the kernel gives us next
	out     int    // blocks that the sink has, or that wait for it
	waits   bool   // the worker waits for events
	batch   pipeline.Batch
	limit   uint64 // packets to receive; 0: no limit
	started time.Time
	fanouts *device.Fanouts
	joined  bool // a fanout
	events  [1]unix.EpollEvent

	packets  counter.Counter // received in blocks
	bytes    counter.Counter
	moved    counter.Counter // bytes of packets that were moved in the ring
	beyond   counter.Counter // packets received beyond the limit
	stamped  counter.Counter // packets with a time of the card's clock
	blocks   counter.Counter // received
	held     atomic.Int64    // copy of out
	complete atomic.Bool     // limit packets are received
	fault    atomic.Pointer[error]

	stopped atomic.Int64  // when StopReceiving was called, in nanoseconds; 0: it was not
	drained time.Duration // how long blocks may take to come after StopReceiving
	watch   watch
}

// burst is the most blocks that one round takes.
const burst = 16

// Ring returns the ring for the sink.
func (s *Source) Ring() *layout.Ring { return &s.ring }

// SetDisk sets the alignment of batches on the disk in bytes, 1 for a stream, and whether the disk pins
// each block when it writes it. It must be called before Begin.
func (s *Source) SetDisk(align uint32, pinned bool) {
	s.rewrite.align, s.pinned = max(4, align), pinned
}

// Chosen sets the reason for this engine, for a flow that may choose. It must be called before Begin.
func (s *Source) Chosen(why string) { s.why = why }

// Node returns the NUMA node of the interface.
func (s *Source) Node() int { return s.node }

func (s *Source) Receive(sink pipeline.Output, open bool, now time.Time) (more bool) {
	if s.waits { // the next event comes with the next block
		_, _ = unix.EpollWait(s.socket.events, s.events[:], 0)
	}
	if !sink.Write(&s.batch, now) || !open {
		return false
	}
	for range burst {
		if !s.receiveBlock() {
			return false
		}
		if !sink.Write(&s.batch, now) {
			return false
		}
	}
	return true
}

// receiveBlock makes records of the next block, if the kernel has filled it, and puts its frame into
// the batch.
func (s *Source) receiveBlock() bool {
	block := s.ring.Bytes(s.next)
	if s.ring.About[s.next].Packets != 0 || owner(block).Load()&unix.TP_STATUS_USER == 0 || s.fault.Load() != nil {
		return false // with the sink, or with the kernel
	}
	number, about := s.next, &s.ring.About[s.next]
	before, beyond := s.rewrite.bytes, s.rewrite.beyond
	if err := s.rewrite.rewrite(block, s.room(), about); err != nil {
		about.Packets = 0
		failed := err // the address of err would put each on the heap
		s.fault.Store(&failed)
		return false
	}
	s.next = (number + 1) % len(s.ring.About)
	s.blocks.Add(1)
	s.packets.Add(uint64(about.Packets) + s.rewrite.beyond - beyond)
	s.bytes.Add(s.rewrite.bytes - before)
	s.beyond.Add(s.rewrite.beyond - beyond)
	s.moved.Add(s.rewrite.moved - s.moved.Load())
	s.stamped.Add(s.rewrite.stamped - s.stamped.Load())
	if s.limit > 0 && s.packets.Load() >= s.limit {
		s.complete.Store(true)
	}
	if about.Packets == 0 {
		owner(block).Store(unix.TP_STATUS_KERNEL)
		return true
	}
	s.out++
	s.held.Store(int64(s.out))
	s.batch.Frames[0], s.batch.Len = s.ring.Frame(number), 1
	return true
}

// room returns how many more packets the flow takes.
func (s *Source) room() uint64 {
	if s.limit == 0 {
		return math.MaxUint64
	}
	return s.limit - min(s.limit, s.packets.Load())
}

// release gives a block back to the kernel. It is layout.Ring.Release.
func (s *Source) release(number int) {
	s.ring.About[number].Packets = 0
	s.out--
	s.held.Store(int64(s.out))
	owner(s.ring.Bytes(number)).Store(unix.TP_STATUS_KERNEL)
}

func (s *Source) FDs(dst []unix.PollFd, blocked bool) []unix.PollFd {
	if blocked {
		return dst
	}
	return append(dst, unix.PollFd{Fd: int32(s.socket.events), Events: unix.POLLIN})
}

// Drained implements pipeline.Source. Everything has come when the kernel has counted as many packets
// as were received and dropped. If a block does not come in time, its packets count as not received.
func (s *Source) Drained(uint64) bool {
	if s.batch.Len > 0 {
		return false
	}
	packets, dropped, _, err := s.socket.statistics()
	if err == nil && packets == dropped+s.packets.Load() {
		return true
	}
	return time.Since(time.Unix(0, s.stopped.Load())) > s.drained
}

func (s *Source) Begin() error {
	if s.from.Fanout == "" {
		return s.socket.bind()
	}
	return s.fanouts.Join(s.from.Fanout, func(id uint16, exists bool) (uint16, error) {
		id, err := s.socket.bindShared(id, exists)
		s.joined = err == nil
		return id, err
	})
}

// leave closes the socket.
func (s *Source) leave() error {
	restored := s.socket.restoreStamping(*s.watch.name.Load())
	if !s.joined {
		return errors.Join(restored, s.socket.close())
	}
	return errors.Join(restored, s.fanouts.Leave(s.from.Fanout, s.socket.close))
}

// SetFilter replaces the filter of a running flow. The kernel decides on each packet by the old filter
// or the new one, so no packet is lost. After an error the old filter stays.
func (s *Source) SetFilter(from, _ config.From) error {
	ins, err := program(from, s.link, s.keep)
	if err != nil {
		return err
	}
	return s.socket.setFilter(ins)
}

// SetRank does nothing: sockets take no packets from each other.
func (s *Source) SetRank(int) error { return nil }

// StopReceiving implements pipeline.Source. The kernel ends the block that it fills by its timer.
func (s *Source) StopReceiving(bool) error {
	s.stopped.Store(time.Now().UnixNano())
	return s.socket.setFilter(rejectAll)
}

func (s *Source) Done() bool { return s.complete.Load() }

func (s *Source) Traffic() (packets, bytes uint64) { return s.packets.Load(), s.bytes.Load() }

func (s *Source) Accepted() uint64 { return s.packets.Load() - s.beyond.Load() }
