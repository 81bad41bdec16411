package rdma

import "github.com/unifiedd/unifiedd/umem"

// receiver is the receive queue of a port, its one queue pair's or the shared one.
type receiver struct {
	target interface {
		PostReceive([]ReceiveRequest, []SGE) (int, error)
	}
	depth   int
	held    int // frames: queued, posted, or completed and not received
	landing uint32
	front   uint32 // bytes in front of the landing that a message's header takes
	spread  uint64 // PortConfig.Spread
	lkey    uint32
	base    uint64
	queued  []ReceiveRequest
	sges    []SGE
}

func (p *MessagePort) newReceiver() (receiver, error) {
	c := &p.config
	r := receiver{landing: c.Landing, spread: c.Spread, lkey: c.Memory.LKey(), base: c.Memory.Addr()}
	if c.Shared != nil {
		r.target, r.depth = c.Shared, c.Shared.Config().Depth
	} else {
		q := c.QueuePairs[0].QueuePair
		r.target, r.depth = q, q.Config().RecvDepth
	}
	if c.Datagrams {
		r.front = GRHBytes
	}
	r.depth = min(r.depth, c.ReceiveCQ.Depth())
	r.queued, r.sges = make([]ReceiveRequest, 0, r.depth), make([]SGE, 0, r.depth)
	return r, nil
}

// queue makes a request of an empty frame or extent.
func (r *receiver) queue(start, room uint64) {
	shift := r.shift(start, room)
	r.queued = append(r.queued, ReceiveRequest{ID: start + shift, SGEs: 1})
	at := uint64(r.landing-r.front) + shift
	r.sges = append(r.sges, SGE{Addr: r.base + start + at, Length: uint32(room - at), LKey: r.lkey})
}

// page is what shifts are multiples of.
const page = 4096

// shift is how far behind its usual place in an extent a message lands: neighbours differ.
func (r *receiver) shift(start, room uint64) uint64 {
	if r.spread == 0 || r.spread > room {
		return 0
	}
	places := (room-r.spread)/page + 1
	return start / room % places * page
}

// post posts what is queued. What the device does not take stays queued.
func (r *receiver) post() error {
	if len(r.queued) == 0 {
		return nil
	}
	n, err := r.target.PostReceive(r.queued, r.sges)
	r.queued = r.queued[:copy(r.queued, r.queued[n:])]
	r.sges = r.sges[:copy(r.sges, r.sges[n:])]
	return err
}

// frame is the frame of a completion, as it landed or failed.
func (r *receiver) frame(c *WorkCompletion) umem.Frame {
	f := umem.Frame{Addr: c.ID + uint64(r.landing)}
	if c.Status != Success {
		return f.WithError(c.Status.Errno())
	}
	if c.Kind == Received {
		f.Len = c.Length - min(r.front, c.Length)
	}
	return f
}
