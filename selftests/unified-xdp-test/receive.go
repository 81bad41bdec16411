package main

import (
	"fmt"
	"time"

	"github.com/unifiedd/unifiedd/umem"
	"github.com/unifiedd/unifiedd/xdp"
)

// batch is the largest number of frames moved at once.
const batch = 64

// supply gives a port its first frames to fill, n at most. It fails if the port takes none.
func supply(p *xdp.Port, h hand, n int) error {
	fs := make([]umem.Frame, min(n, p.Limits().Supply))
	fs = fs[:h.holder.Take(fs)]
	took := p.Supply(fs)
	if took == 0 {
		return fmt.Errorf("supply frames: the region has none left of %d (-queues binds fewer queues, -ring makes rings smaller)", n)
	}
	h.holder.Give(fs[took:])
	return nil
}

// receiver receives packets and supplies their frames again.
type receiver struct {
	job     *job
	port    *xdp.Port
	limited bool // by a count
	full    [batch]umem.Frame
	held    int // of full, not yet supplied again
}

func newReceiver(j *job, p *xdp.Port, h hand) (*receiver, error) {
	return &receiver{job: j, port: p, limited: j.session.options.count > 0}, supply(p, h, j.session.share())
}

// turn supplies the frames that it received. Frames wait while the fill ring is full. If too many
// wait, turn receives nothing. Fewer packets than requested mean that the rx ring was empty.
func (r *receiver) turn() (time.Duration, error) {
	space := r.full[r.held:]
	n := r.port.Recv(space)
	if n > 0 {
		if r.limited {
			r.job.claim(packets(space[:n]))
		}
		r.held += n
	}
	if r.held > 0 {
		took := r.port.Supply(r.full[:r.held])
		r.held = copy(r.full[:], r.full[took:r.held])
	}
	err := r.port.Kick()
	switch {
	case n == len(space):
		return 0, err
	case r.held > 0:
		return soon, err
	}
	return forever, err
}

func (r *receiver) drain() error { return nil }

// packets counts the packets that end among the frames.
func packets(fs []umem.Frame) (n int) {
	for i := range fs {
		if !fs[i].Continues() {
			n++
		}
	}
	return n
}
