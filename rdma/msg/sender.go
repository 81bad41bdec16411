package msg

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/align"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/umem"
)

// sender is the send queue of one of a port's queue pairs. A ring keeps its frames in order. The ID
// of a work request identifies its frames, so that one signaled completion returns the frames of
// all requests before it.
type sender struct {
	Peer
	qpn     uint32
	lkey    uint32
	base    uint64 // the registration's address of the region's byte 0
	message uint64
	pieces  int
	room    int // work requests that fit
	inline  uint64

	frameQueue
	made    uint32           // frames before it belong to requests
	form    rdma.SendRequest // of a SEND
	posted  uint16           // work requests, with queued ones
	done    uint16
	queued  []rdma.SendRequest // for Kick
	sges    []rdma.SGE
	signals int // requests since the last signaled one
	owed    int // frames of those
	cause   rdma.OpError
	count   *Counts // the port's
	waits   bool    // it is in Port.waiting
	closed  bool    // it is detached
	parted  bool    // see Port.Part
	shut    bool    // the queue pair is closed
	broken  bool    // Broken returns it, or has
}

// signalEvery bounds the requests per signaled one.
const signalEvery = 16

func newSender(q Peer, m rdma.MemoryRegion, count *Counts) *sender {
	g := q.QueuePair.Config()
	pieces, room := max(g.SendSGEs, 1), min(g.SendDepth, 1<<15)
	s := &sender{Peer: q, qpn: q.QueuePair.QPN(), lkey: m.LKey(), base: m.Addr(), message: q.Message, pieces: pieces, room: room,
		inline: uint64(g.InlineBytes), frameQueue: newFrameQueue(room * pieces),
		count: count, form: rdma.SendRequest{Op: rdma.Send, RemoteQPN: q.QPN, RemoteQKey: q.QKey},
		queued: make([]rdma.SendRequest, 0, room), sges: make([]rdma.SGE, 0, room*pieces)}
	if q.Grants != nil {
		s.room -= q.Grants.Requests()
	}
	if q.Handle != nil {
		s.form.Handle = q.Handle.ID()
	}
	return s
}

// An ID consists of one past the number of the request's last frame, the number of the request, and how
// many frames it has.
func workID(end uint32, request uint16, frames int) uint64 {
	return uint64(end)<<32 | uint64(request)<<16 | uint64(uint16(frames))
}

func readID(id uint64) (end uint32, request uint16, frames uint32) {
	return uint32(id >> 32), uint16(id >> 16), uint32(uint16(id))
}

// underWay returns how many requests are not known to be done.
func (s *sender) underWay() int { return int(s.posted - s.done) }

// full reports whether there is no room for another request.
func (s *sender) full() bool { return s.underWay() >= s.room }

// request makes a request of the next waiting frames. They form one message.
func (s *sender) request(r rdma.SendRequest, frames int, length uint64) {
	for range frames {
		f := s.at(s.made)
		s.sges = append(s.sges, rdma.SGE{Addr: s.base + f.Addr, Length: f.Len, LKey: s.lkey})
		s.made++
	}
	r.SGEs = uint32(frames)
	s.owed += frames
	if s.fitsInline(length) {
		s.count.Inlined += length
	}
	s.add(r, frames, length)
}

// control makes a request for bytes outside the frames that Reap returns.
func (s *sender) control(r rdma.SendRequest, addr uint64, length uint32) {
	s.sges = append(s.sges, rdma.SGE{Addr: s.base + addr, Length: length, LKey: s.lkey})
	r.SGEs = 1
	s.add(r, 0, uint64(length))
}

func (s *sender) add(r rdma.SendRequest, frames int, length uint64) {
	s.posted++
	r.ID = workID(s.made, s.posted, frames)
	if s.fitsInline(length) {
		r.Flags |= rdma.Inline
	}
	if s.signals++; s.signals == signalEvery {
		s.signal(&r)
	}
	s.queued = append(s.queued, r)
}

// fitsInline reports whether the bytes of a request are copied into it.
func (s *sender) fitsInline(length uint64) bool { return s.inline > 0 && length <= s.inline }

func (s *sender) signal(r *rdma.SendRequest) {
	r.Flags |= rdma.Signaled
	s.signals, s.owed = 0, 0
}

// post posts the queued requests. It signals the last one if frames wait for its completion.
// Requests that the device does not take stay queued.
func (s *sender) post() error {
	if s.owed > 0 {
		s.signal(&s.queued[len(s.queued)-1])
	}
	n, err := s.QueuePair.PostSend(s.queued, s.sges)
	sges := 0
	for i := range s.queued[:n] {
		sges += int(s.queued[i].SGEs)
	}
	s.queued = s.queued[:copy(s.queued, s.queued[n:])]
	s.sges = s.sges[:copy(s.sges, s.sges[sges:])]
	return err
}

// complete records the end of a request and of those before it. It returns one past the number of
// the last frame that is done.
func (s *sender) complete(c *rdma.WorkCompletion) uint32 {
	end, request, frames := readID(c.ID)
	s.done = request
	if c.Status != rdma.Success {
		s.note(c)
		s.fail(end-frames, end, c.Status.Errno())
	}
	return end
}

// note keeps the first failure, which is the cause of later ones.
func (s *sender) note(c *rdma.WorkCompletion) {
	if s.cause.Status == rdma.Success || s.cause.Status == rdma.WorkFlushed && c.Status != rdma.WorkFlushed {
		s.cause = rdma.OpError{QPN: c.QPN, Status: c.Status, VendorError: c.VendorError}
	}
}

// fail marks frames as failed.
func (s *sender) fail(from, to uint32, errno unix.Errno) {
	for n := from; n != to; n++ {
		*s.at(n) = s.at(n).WithError(errno)
	}
}

// close closes the queue pair, once.
func (s *sender) close() error {
	if s.shut {
		return nil
	}
	err := s.Peer.close()
	s.shut = err == nil
	return err
}

// close destroys the queue pair and the address handle.
func (p *Peer) close() error {
	err := p.QueuePair.Close()
	if p.Handle != nil {
		err = errors.Join(err, p.Handle.Close())
	}
	return err
}

// frameQueue is a ring of frames.
type frameQueue struct {
	items      []umem.Frame
	head, tail uint32
}

// newFrameQueue makes a ring with room for n frames.
func newFrameQueue(n int) frameQueue {
	return frameQueue{items: make([]umem.Frame, align.PowerOfTwo(n))}
}

func (q *frameQueue) len() int { return int(q.tail - q.head) }

// at returns the frame with a number between head and tail.
func (q *frameQueue) at(n uint32) *umem.Frame { return &q.items[n&uint32(len(q.items)-1)] }

func (q *frameQueue) push(f umem.Frame) {
	*q.at(q.tail) = f
	q.tail++
}

// pop moves frames from the front to dst and returns their number.
func (q *frameQueue) pop(dst []umem.Frame) int {
	n := min(len(dst), q.len())
	for i := range dst[:n] {
		dst[i] = *q.at(q.head)
		q.head++
	}
	return n
}

// numbers finds a port's queue pair by QPN. It is a hash table with open addressing, read once per
// completion and rebuilt when a queue pair is attached or detached.
type numbers struct {
	keys []uint32 // QPN + 1; 0: empty
	vals []int
}

func (t *numbers) set(senders []*sender) {
	size := align.PowerOfTwo(2*len(senders) + 1)
	t.keys, t.vals = make([]uint32, size), make([]int, size)
	for n, s := range senders {
		if s != nil {
			i := t.slot(s.qpn)
			t.keys[i], t.vals[i] = s.qpn+1, n
		}
	}
}

// slot returns the slot that has the QPN, or the empty one for it. At least half of all slots are
// empty.
func (t *numbers) slot(qpn uint32) uint32 {
	mask := uint32(len(t.keys) - 1)
	i := qpn * 0x9e3779b1 >> 7 & mask
	for t.keys[i] != 0 && t.keys[i] != qpn+1 {
		i = (i + 1) & mask
	}
	return i
}

// find returns the number of the queue pair, -1 if it is gone.
func (t *numbers) find(qpn uint32) int {
	if i := t.slot(qpn); t.keys[i] != 0 {
		return t.vals[i]
	}
	return -1
}
