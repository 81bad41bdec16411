package msg

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/umem"
)

// receiver is the receive queue of a port: the queue of its only queue pair, or the shared one.
type receiver struct {
	target interface {
		PostReceive([]rdma.ReceiveRequest, []rdma.SGE) (int, error)
	}
	depth   int
	held    int // frames that are queued, posted, or completed and not received
	landing uint32
	front   uint32 // bytes of a network header before the landing
	spread  uint64 // Config.Spread
	lkey    uint32
	base    uint64
	queued  []rdma.ReceiveRequest
	sges    []rdma.SGE
}

func (p *Port) newReceiver() (receiver, error) {
	c := &p.config
	r := receiver{landing: c.Landing, spread: c.Spread, lkey: c.Memory.LKey(), base: c.Memory.Addr()}
	if c.Shared != nil {
		r.target, r.depth = c.Shared, c.Shared.Config().Depth
	} else {
		q := c.QueuePairs[0].QueuePair
		r.target, r.depth = q, q.Config().RecvDepth
	}
	if c.Datagrams {
		r.front = rdma.GRHBytes
	}
	r.depth = min(r.depth, c.ReceiveCQ.Depth())
	r.queued, r.sges = make([]rdma.ReceiveRequest, 0, r.depth), make([]rdma.SGE, 0, r.depth)
	return r, nil
}

// queue makes a request for an empty frame or extent.
func (r *receiver) queue(start, room uint64) {
	shift := r.shift(start, room)
	r.queued = append(r.queued, rdma.ReceiveRequest{ID: start + shift, SGEs: 1})
	at := uint64(r.landing-r.front) + shift
	r.sges = append(r.sges, rdma.SGE{Addr: r.base + start + at, Length: uint32(room - at), LKey: r.lkey})
}

// page is the unit of shifts.
const page = 4096

// shift returns how far after its usual offset a message begins in an extent. It differs between
// neighbouring extents.
func (r *receiver) shift(start, room uint64) uint64 {
	if r.spread == 0 || r.spread > room {
		return 0
	}
	places := (room-r.spread)/page + 1
	return start / room % places * page
}

// post posts the queued receives. Those that the device does not take stay queued.
func (r *receiver) post() error {
	if len(r.queued) == 0 {
		return nil
	}
	n, err := r.target.PostReceive(r.queued, r.sges)
	r.queued = r.queued[:copy(r.queued, r.queued[n:])]
	r.sges = r.sges[:copy(r.sges, r.sges[n:])]
	return err
}

// frame returns the frame of a completion.
func (r *receiver) frame(c *rdma.WorkCompletion) umem.Frame {
	f := umem.Frame{Addr: c.ID + uint64(r.landing)}
	if c.Status != rdma.Success {
		return f.WithError(c.Status.Errno())
	}
	if c.Kind == rdma.Received {
		f.Len = c.Length - min(r.front, c.Length)
	}
	return f
}

// Supply posts receives into frames and extents, one message each. Kick posts what the device does
// not take now.
func (p *Port) Supply(empty []umem.Frame) int {
	if p.closed {
		return 0
	}
	n := min(len(empty), p.receive.depth-p.receive.held)
	for _, f := range empty[:n] {
		p.receive.queue(p.region.Start(f))
	}
	p.receive.held += n
	p.worker.PassTo(p.holder, empty[:n])
	p.receive.post()
	return n
}

// Recv returns received messages. The frame of a failed or flushed receive has an error.
func (p *Port) Recv(dst []umem.Frame) int {
	total := 0
	for total < len(dst) && !p.closed {
		batch := p.came.next(len(dst) - total)
		for i := range batch {
			dst[total+i] = p.receiveOne(&batch[i])
		}
		if total += len(batch); p.came.last() { // another poll would send ACKs before the answers to these messages
			break
		}
	}
	p.receive.held -= total
	p.holder.PassTo(p.worker, dst[:total])
	p.stats.Publish()
	p.tell(total == 0)
	return total
}

// receiveOne makes the frame of a completion, and fills its side entry.
func (p *Port) receiveOne(c *rdma.WorkCompletion) umem.Frame {
	f := p.receive.frame(c)
	number := p.byQPN.find(c.QPN)
	side := p.region.Side(f)
	side.Queue, side.Target, side.Block = uint16(number), 0, 0
	if c.Status != rdma.Success {
		p.stats.failed(c.Status)
		if number >= 0 {
			p.senders[number].note(c)
		}
		return f
	}
	p.stats.Own.Received++
	p.stats.Own.BytesReceived += uint64(f.Len)
	if c.Flags&rdma.HasImmediate != 0 {
		b := c.Immediate()
		side.Target = binary.BigEndian.Uint32(b[:])
		p.stats.Own.Immediates++
	}
	switch {
	case p.receive.front > 0:
		side.Block = uint64(c.RemoteQPN)
	case c.Kind == rdma.ReceivedWrite:
		side.Block = uint64(c.Length)
	}
	return f
}

// Send queues messages. Side.Queue of a message's first frame selects the queue pair. It stops at a
// message whose queue pair has no room. Reap returns messages that can never be sent, with an
// error.
func (p *Port) Send(full []umem.Frame) int {
	if p.closed {
		return 0
	}
	room := min(len(full), p.sendMax-p.sending)
	whole, taken := umem.Whole(full[:room]), 0
	for taken < whole {
		n := chain(full[taken:whole])
		if !p.sendOne(full[taken : taken+n]) {
			break
		}
		taken += n
	}
	p.sending += taken
	p.worker.PassTo(p.holder, full[:taken])
	return taken
}

// chain returns the number of frames in the first message.
func chain(fs []umem.Frame) int {
	for n := range fs {
		if !fs[n].Continues() {
			return n + 1
		}
	}
	return len(fs)
}

// sendOne queues one message. It returns false if there is no room now.
func (p *Port) sendOne(message []umem.Frame) bool {
	number := int(p.region.Side(message[0]).Queue)
	if len(p.senders) == 1 {
		number = 0
	}
	if number >= len(p.senders) || p.senders[number] == nil || p.senders[number].parted {
		p.refuse(message, unix.ENOTCONN)
		return true
	}
	s := p.senders[number]
	length, errno := s.measure(p.region, message)
	if errno != 0 {
		p.refuse(message, errno)
		return true
	}
	if s.full() {
		p.collect()
	}
	if s.full() {
		return false
	}
	for _, f := range message {
		s.push(f)
	}
	s.request(s.form, len(message), length)
	p.queue(s)
	return true
}

// measure returns the length of a message, or the reason why it cannot be sent.
func (s *sender) measure(r *umem.Region, message []umem.Frame) (length uint64, errno unix.Errno) {
	for _, f := range message {
		start, room := r.Start(f)
		if f.Addr-start+uint64(f.Len) > room {
			return 0, unix.EINVAL
		}
		length += uint64(f.Len)
	}
	if length > s.message || len(message) > s.pieces {
		return 0, unix.EMSGSIZE
	}
	return length, 0
}

// refuse makes Reap return a message with an error.
func (p *Port) refuse(message []umem.Frame, errno unix.Errno) {
	p.stats.Own.Refused++
	for _, f := range message {
		p.drained.push(f.WithError(errno))
	}
}

// Reap returns frames that were sent or failed.
func (p *Port) Reap(dst []umem.Frame) int {
	if p.closed {
		return 0
	}
	if p.drained.len() < len(dst) {
		p.collect()
	}
	n := p.drained.pop(dst)
	p.sending -= n
	p.holder.PassTo(p.worker, dst[:n])
	p.stats.Publish()
	p.tell(n == 0)
	return n
}

// collect processes all completions of sends.
func (p *Port) collect() {
	for more := true; more; more = !p.sent.last() {
		batch := p.sent.next(batchSize)
		for i := range batch {
			p.sendDone(&batch[i])
		}
	}
}

func (p *Port) sendDone(c *rdma.WorkCompletion) {
	number := p.byQPN.find(c.QPN)
	if number < 0 {
		return // of a detached queue pair; Detach returned its frames
	}
	s := p.senders[number]
	if c.Status != rdma.Success {
		p.stats.failed(c.Status)
	}
	if s.Grants != nil && s.Grants.Done(c) {
		if c.Status != rdma.Success {
			s.note(c)
		}
		return
	}
	p.stats.retire(s, s.complete(c), &p.drained)
	p.breaks(number, c)
}

// retire moves the frames of a sender up to a number to drained.
func (s *stats) retire(of *sender, to uint32, drained *frameQueue) {
	for of.head != to {
		f := *of.at(of.head)
		of.head++
		drained.push(f)
		if f.Options&umem.Failed == 0 {
			s.sentOne(f)
		}
	}
}
