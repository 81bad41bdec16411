package transport

import (
	"fmt"
	"math/bits"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/release"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/roce/wire"
)

// line keeps words that different threads write out of each other's cache lines.
type line [64]byte

// sendQueue is a ring of work requests. The program's thread puts them in behind tail, the engine
// works on those from head on. Slots are found by the lower bits of indices that count on.
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
	next     uint32        // the program's own: tail with what is not published
	known    uint32        // the program's own: head as it was last read
	_        line
	head     atomic.Uint32 // written by the engine: the oldest request not completed
	_        line
}

// work is what the engine knows of a request that it has begun.
type work struct {
	stage       stage
	status      rdma.Status // of one that failed
	first, last wire.PSN
	length      uint32
	got         uint32 // packets of a READ's answer that came
	ticket      uint64 // of UC and UD: how many packets the engine has given with the last one
}

// stage is how far a request has come.
type stage uint8

const (
	posted  stage = iota
	started       // has its packet numbers
	local         // is done, and has no packets
	failed        // is the one that the queue pair fails by, once those before it are done
)

// newSendQueue makes a queue for at least depth requests.
func newSendQueue(depth, sges, inline int) *sendQueue {
	n := roundUp(depth)
	return &sendQueue{requests: make([]rdma.SendRequest, n), sges: make([]rdma.SGE, n*sges), inline: make([]byte, n*inline), works: make([]work, n),
		mask: uint32(n - 1), perSlot: uint32(sges), perBytes: uint32(inline)}
}

// roundUp is the power of two that is at least n, and at least 1.
func roundUp(n int) int { return 1 << bits.Len(uint(max(n, 1)-1)) }

func (s *sendQueue) depth() int { return int(s.mask) + 1 }

// put puts in a request and its elements, and says whether there was room. Only publish shows it.
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

// reserve finds the slot for the next request.
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

// elements are those of a request that has been put in.
func (s *sendQueue) elements(i uint32) []rdma.SGE {
	return s.slotSGEs(i & s.mask)[:s.request(i).SGEs]
}

// discard forgets all requests. The program does not post meanwhile.
func (s *sendQueue) discard() uint32 {
	tail := s.tail.Load()
	s.head.Store(tail)
	return tail
}
