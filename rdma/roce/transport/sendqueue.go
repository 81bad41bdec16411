package transport

import (
	"fmt"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/align"
	"github.com/unifiedd/unifiedd/internal/release"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/roce/wire"
)

// line keeps words that different threads write in separate cache lines.
type line [64]byte

// sendQueue is a ring of work requests. The program's thread adds them at tail, the engine works on
// those from head on. The indices only grow; their lower bits select the slot.
type sendQueue struct {
	requests []rdma.SendRequest // written by the program
	sges     []rdma.SGE         // the program's, perSlot for each request
	inline   []byte             // the program's, inlineBytes for each
	works    []work             // the engine's
	mask     uint32
	perSlot  uint32
	perBytes uint32
	_        line
	tail     atomic.Uint32 // written by the program: one past the last request
	next     uint32        // program only: tail plus what is not published
	known    uint32        // program only: head as last read
	_        line
	head     atomic.Uint32 // written by the engine: the oldest request not completed
	_        line
}

// work is the engine's state of a request that has begun.
type work struct {
	// stage is the progress of a request.
	stage       stage
	status      rdma.Status // if it failed
	first, last wire.PSN
	length      uint32
	got         uint32 // received packets of a READ's answer
	ticket      uint64 // of UC and UD: Engine.given after the last packet
}

// stage says how far a request has progressed.
type stage uint8

const (
	posted  stage = iota
	started       // has its packet numbers
	local         // is done and has no packets
	failed        // fails the queue pair, once those before it are done
)

// newSendQueue makes a queue for at least depth requests.
func newSendQueue(depth, sges, inline int) *sendQueue {
	n := align.PowerOfTwo(depth)
	return &sendQueue{requests: make([]rdma.SendRequest, n), sges: make([]rdma.SGE, n*sges), inline: make([]byte, n*inline), works: make([]work, n),
		mask: uint32(n - 1), perSlot: uint32(sges), perBytes: uint32(inline)}
}

func (s *sendQueue) depth() int { return int(s.mask) + 1 }

// put adds a request with its elements, and reports whether there was room. It becomes visible by
// publish.
func (s *sendQueue) put(r *rdma.SendRequest, sges []rdma.SGE) bool {
	slot, ok := s.reserve()
	if !ok {
		return false
	}
	s.requests[slot] = *r
	copy(s.slotSGEs(slot), sges)
	s.next++
	return true
}

// reserve returns the slot for the next request.
func (s *sendQueue) reserve() (slot uint32, ok bool) {
	if s.next-s.known > s.mask {
		if s.known = s.head.Load(); s.next-s.known > s.mask {
			return 0, false
		}
	}
	return s.next & s.mask, true
}

func (s *sendQueue) publish() { release.Store32(&s.tail, s.next) }

func (s *sendQueue) full() error {
	return fmt.Errorf("the queue of %d is full: %w", s.depth(), unix.ENOMEM)
}

func (s *sendQueue) slotSGEs(slot uint32) []rdma.SGE {
	return s.sges[slot*s.perSlot : (slot+1)*s.perSlot]
}

func (s *sendQueue) slotInline(slot uint32) []byte {
	return s.inline[slot*s.perBytes : (slot+1)*s.perBytes]
}

func (s *sendQueue) work(i uint32) *work                { return &s.works[i&s.mask] }
func (s *sendQueue) request(i uint32) *rdma.SendRequest { return &s.requests[i&s.mask] }

// elements returns the elements of a request.
func (s *sendQueue) elements(i uint32) []rdma.SGE {
	return s.slotSGEs(i & s.mask)[:s.request(i).SGEs]
}

// discard removes all requests. The program must not post at the same time.
func (s *sendQueue) discard() uint32 {
	tail := s.tail.Load()
	s.head.Store(tail)
	return tail
}
