package rdma

import (
	"fmt"

	"github.com/unifiedd/unifiedd/umem"
)

// control is the buffers of a WritePort, in frames of its own: first those that all
// receives are posted with, then those that SENDs of credits are made in.
type control struct {
	region   *umem.Region
	frames   []umem.Frame
	each     int // buffers in one frame
	receives int
	queue    QueuePair
	lkey     uint32
	base     uint64
	queued   []ReceiveRequest // to be posted
	sges     []SGE
	// posted are the numbers of the requests whose SENDs have the buffers, in a ring.
	posted     [creditSends]uint16
	head, tail uint32
}

func (k *control) open(r *umem.Region, h *umem.Holder, c *WriteConfig) error {
	k.region, k.queue, k.lkey, k.base = r, c.QueuePair, c.Memory.LKey(), c.Memory.Addr()
	k.each, k.receives = int(r.FrameSize()/controlBytes), c.Slots+c.PeerSlots
	k.frames = make([]umem.Frame, (k.receives+creditSends+k.each-1)/k.each)
	if n := h.Take(k.frames); n < len(k.frames) {
		return fmt.Errorf("the pool has %d of %d frames for control buffers: open a larger region", n, len(k.frames))
	}
	k.queued, k.sges = make([]ReceiveRequest, 0, k.receives), make([]SGE, 0, k.receives)
	for n := range k.receives {
		k.again(uint64(n))
	}
	return k.post()
}

// at is the region's address of a buffer.
func (k *control) at(n int) uint64 {
	return k.frames[n/k.each].Addr + uint64(n%k.each*controlBytes)
}

func (k *control) bytes(n int) []byte { return k.region.At(k.at(n), controlBytes) }

// again queues the receive of a buffer.
func (k *control) again(n uint64) {
	k.queued = append(k.queued, ReceiveRequest{ID: n, SGEs: 1})
	k.sges = append(k.sges, SGE{Addr: k.base + k.at(int(n)), Length: controlBytes, LKey: k.lkey})
}

func (k *control) post() error {
	if len(k.queued) == 0 {
		return nil
	}
	n, err := k.queue.PostReceive(k.queued, k.sges)
	k.queued = k.queued[:copy(k.queued, k.queued[n:])]
	k.sges = k.sges[:copy(k.sges, k.sges[n:])]
	return err
}

// free is a buffer for a SEND, when requests up to a number are done; -1: there is none.
func (k *control) free(done uint16) int {
	for k.head != k.tail && int16(done-k.posted[k.head%creditSends]) >= 0 {
		k.head++
	}
	if k.tail-k.head == creditSends {
		return -1
	}
	return k.receives + int(k.tail%creditSends)
}

// use notes the request that has the buffer that free said.
func (k *control) use(request uint16) {
	k.posted[k.tail%creditSends] = request
	k.tail++
}
