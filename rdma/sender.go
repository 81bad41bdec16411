package rdma

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/umem"
)

// sender is the send queue of one of a port's queue pairs. Its frames lie in order in a
// ring; a work request's ID says which of them are its own, so that one signaled completion
// gives back all that were posted before it.
type sender struct {
	Peer
	qpn     uint32
	lkey    uint32
	base    uint64 // what the registration adds to a region's address
	message uint64
	pieces  int
	room    int // work requests that fit
	inline  uint64

	frameQueue
	posted  uint16 // work requests, queued ones too
	done    uint16
	queued  []SendRequest // to be posted by Kick
	sges    []SGE
	signals int // queued requests since the last signaled one
	cause   OpError
}

// signalEvery is how many requests go out for one completion, at most.
const signalEvery = 16

func newSender(q Peer, m MemoryRegion) *sender {
	g := q.QueuePair.Config()
	pieces, room := max(g.SendSGEs, 1), min(g.SendDepth, 1<<15)
	return &sender{Peer: q, qpn: q.QueuePair.QPN(), lkey: m.LKey(), base: m.Addr(), message: q.Message, pieces: pieces, room: room,
		inline: uint64(g.InlineBytes), frameQueue: newFrameQueue(room * pieces),
		queued: make([]SendRequest, 0, room), sges: make([]SGE, 0, room*pieces)}
}

// An ID is the number behind the request's last frame, that of the request, and how
// many frames it has.
func workID(end uint32, request uint16, frames int) uint64 {
	return uint64(end)<<32 | uint64(request)<<16 | uint64(uint16(frames))
}

func readID(id uint64) (end uint32, request uint16, frames uint32) {
	return uint32(id >> 32), uint16(id >> 16), uint32(uint16(id))
}

// full reports whether another request would not fit.
func (s *sender) full() bool { return int(s.posted-s.done) >= s.room }

// queue makes a request of a message.
func (s *sender) queue(message []umem.Frame, length uint64) {
	for _, f := range message {
		s.sges = append(s.sges, SGE{Addr: s.base + f.Addr, Length: f.Len, LKey: s.lkey})
		s.push(f)
	}
	s.posted++
	r := SendRequest{ID: workID(s.tail, s.posted, len(message)), Op: Send, SGEs: uint32(len(message)),
		RemoteQPN: s.QPN, RemoteQKey: s.QKey}
	if s.Handle != nil {
		r.Handle = s.Handle.ID()
	}
	if length <= s.inline {
		r.Flags |= Inline
	}
	if s.signals++; s.signals == signalEvery {
		r.Flags |= Signaled
		s.signals = 0
	}
	s.queued = append(s.queued, r)
}

// post posts what is queued; the last request is signaled. What the device does not take
// stays queued.
func (s *sender) post() error {
	s.queued[len(s.queued)-1].Flags |= Signaled
	s.signals = 0
	n, err := s.QueuePair.PostSend(s.queued, s.sges)
	sges := 0
	for _, r := range s.queued[:n] {
		sges += int(r.SGEs)
	}
	s.queued = s.queued[:copy(s.queued, s.queued[n:])]
	s.sges = s.sges[:copy(s.sges, s.sges[sges:])]
	return err
}

// complete notes how a request, and those before it, ended. It returns the number behind
// the last frame that is done.
func (s *sender) complete(c *WorkCompletion) uint32 {
	end, request, frames := readID(c.ID)
	s.done = request
	if c.Status != Success {
		s.note(c)
		s.fail(end-frames, end, c.Status.Errno())
	}
	return end
}

// note keeps the first failure, which is the cause of those behind it.
func (s *sender) note(c *WorkCompletion) {
	if s.cause.Status == Success || s.cause.Status == WorkFlushed && c.Status != WorkFlushed {
		s.cause = OpError{QPN: c.QPN, Status: c.Status, VendorError: c.VendorError}
	}
}

// fail marks frames as failed.
func (s *sender) fail(from, to uint32, errno unix.Errno) {
	for n := from; n != to; n++ {
		*s.at(n) = s.at(n).WithError(errno)
	}
}

func (s *sender) close() error { return s.Peer.close() }

// close destroys the queue pair and the way to its peer.
func (p *Peer) close() error {
	err := p.QueuePair.Close()
	if p.Handle != nil {
		err = errors.Join(err, p.Handle.Close())
	}
	return err
}
