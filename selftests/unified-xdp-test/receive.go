package main

import (
	"fmt"
	"time"

	"github.com/unifiedd/unifiedd/umem"
	"github.com/unifiedd/unifiedd/xdp"
)

// batch is the most frames that are moved at once.
const batch = 64

// supply gives a port its first frames to fill, n at most, and fails where it gets none.
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
	held    int // of full, not supplied again yet
}

func newReceiver(j *job, p *xdp.Port, h hand) (*receiver, error) {
	return &receiver{job: j, port: p, limited: j.session.options.count > 0}, supply(p, h, j.session.share())
}

// turn first finds frames held back a place: where the fill ring is full nothing
// more is received.
func (r *receiver) turn() (int, error) {
	n := r.port.Recv(r.full[r.held:])
	if n > 0 && r.limited {
		r.job.claim(packets(r.full[r.held : r.held+n]))
	}
	r.held += n
	if r.held > 0 {
		took := r.port.Supply(r.full[:r.held])
		r.held = copy(r.full[:], r.full[took:r.held])
	}
	return n, r.port.Kick()
}

func (r *receiver) patience() time.Duration { return longest }

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
