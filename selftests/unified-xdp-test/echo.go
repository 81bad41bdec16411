package main

import (
	"time"

	"github.com/unifiedd/unifiedd/umem"
	"github.com/unifiedd/unifiedd/xdp"
)

// echoer sends packets back from the frames they arrived in. Frames circulate: received, sent,
// reaped, supplied.
type echoer struct {
	job     *job
	port    *xdp.Port
	hand    hand
	region  *umem.Region
	full    [2 * batch]umem.Frame
	held    int  // of full, turned round and not yet sent
	inside  bool // the last of full continues
	limited bool // by a count
	empty   [batch]umem.Frame
	away    int // frames sent and not reaped
}

func newEchoer(j *job, p *xdp.Port, h hand) (*echoer, error) {
	return &echoer{job: j, port: p, hand: h, region: j.session.region, limited: j.session.options.count > 0}, supply(p, h, j.session.share())
}

// turn receives only packets that it can send. If it can send none, the rx ring fills, and the
// kernel counts the losses.
func (e *echoer) turn() (time.Duration, error) {
	moved := e.recycle() + e.receive()
	err := e.send()
	moved += e.recycle()
	switch {
	case moved > 0:
		return 0, err
	case e.away > 0 || e.held > 0:
		return soon, err
	}
	return forever, err
}

// receive takes received packets and swaps their addresses.
func (e *echoer) receive() int {
	n := e.port.Recv(e.full[e.held:min(e.held+batch, len(e.full))])
	if n == 0 {
		return 0
	}
	come := e.full[e.held : e.held+n]
	e.turnRound(come)
	e.held += n
	if e.limited {
		e.job.claim(packets(come))
	}
	return n
}

// send sends packets while there is room.
func (e *echoer) send() error {
	if e.held > 0 {
		took := e.port.Send(e.full[:e.held])
		e.held = copy(e.full[:], e.full[took:e.held])
		e.away += took
	}
	return e.port.Kick()
}

// drain sends the rest. It has no rest of a packet that has arrived only in part.
func (e *echoer) drain() error {
	for n := 0; n < drains && (e.away > 0 || packets(e.full[:e.held]) > 0); n++ {
		if err := e.send(); err != nil {
			return err
		}
		e.recycle()
		time.Sleep(soon)
	}
	return nil
}

// turnRound turns each packet that begins among the frames.
func (e *echoer) turnRound(fs []umem.Frame) {
	for i := range fs {
		if !e.inside {
			turnRound(e.region.Bytes(fs[i]))
		}
		e.inside = fs[i].Continues()
	}
}

// recycle supplies the frames of packets that have left.
func (e *echoer) recycle() int {
	n := e.port.Reap(e.empty[:])
	e.away -= n
	if took := e.port.Supply(e.empty[:n]); took < n {
		e.hand.holder.Give(e.empty[took:n]) // the ring does not get full: the frames came out of it
	}
	return n
}
