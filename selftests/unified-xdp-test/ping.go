package main

import (
	"fmt"
	"time"

	"github.com/unifiedd/unifiedd/internal/latency"
	"github.com/unifiedd/unifiedd/umem"
	"github.com/unifiedd/unifiedd/xdp"
)

// pinger sends a packet, waits for the echo, and sends the next. The first port sends. The echo may
// arrive on any port.
type pinger struct {
	job      *job
	ports    []*xdp.Port
	region   *umem.Region
	frame    []umem.Frame // the packet, empty while the kernel has it
	size     uint32
	sequence uint64
	waiting  bool // waiting for the echo of sequence
	sent     time.Duration
	every    time.Duration // interval between packets; zero: the next at once
	start    time.Time
	hist     *latency.Histogram
	lost     uint64
	late     uint64 // echoes of packets that timed out, and duplicates
	in       [batch]umem.Frame
}

// giveUp is how long to wait for an echo.
const giveUp = time.Second

func newPinger(j *job, ports []*xdp.Port) (*pinger, error) {
	o := &j.session.options
	p := &pinger{job: j, ports: ports, region: j.session.region, size: uint32(o.size), start: time.Now(), hist: latency.New()}
	if o.rate > 0 {
		p.every = time.Duration(1e9 / o.rate)
	}
	p.frame = make([]umem.Frame, 1)
	if j.session.hands[0].holder.Take(p.frame) == 0 {
		return nil, fmt.Errorf("take a frame from the region: there is none")
	}
	p.frame[0].Len = p.size
	compose(p.region.Bytes(p.frame[0]), o.to, j.session.mac, 0)
	for i, port := range ports {
		hands := j.session.hands
		if err := supply(port, hands[i%len(hands)], j.session.share()-1); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (p *pinger) turn() (time.Duration, error) {
	moved, err := p.receive()
	if err != nil {
		return 0, err
	}
	now := time.Since(p.start)
	if p.waiting && now-p.sent > giveUp {
		p.lost++
		p.waiting = false
	}
	wait := p.maxWait(now)
	if wait == 0 && p.job.claim(1) > 0 {
		return 0, p.send()
	}
	if moved > 0 {
		return 0, nil
	}
	return wait, nil
}

// maxWait returns the time until the next packet; zero: it can leave now.
func (p *pinger) maxWait(now time.Duration) time.Duration {
	switch {
	case p.waiting:
		return longest
	case len(p.frame) == 0:
		return soon
	case p.sequence == 0:
		return 0
	}
	return max(0, p.sent+p.every-now)
}

// send sends the next packet. It reads the clock as late as possible. Kick is the system call that
// sends.
func (p *pinger) send() error {
	p.sequence++
	p.sent = time.Since(p.start)
	number(p.region.Bytes(p.frame[0]), p.sequence, uint64(p.sent))
	p.frame = p.frame[:1-p.ports[0].Send(p.frame)]
	p.waiting = true
	return p.ports[0].Kick()
}

// receive takes echoes, and takes back the sent packet.
func (p *pinger) receive() (moved int, err error) {
	for _, port := range p.ports {
		n := port.Recv(p.in[:])
		if n == 0 {
			continue
		}
		now := time.Since(p.start)
		for i := range n {
			p.note(p.region.Bytes(p.in[i]), now)
		}
		port.Supply(p.in[:n]) // there is room: the frames came out of this ring
		if err := port.Kick(); err != nil {
			return n, err
		}
		moved += n
	}
	if len(p.frame) == 0 {
		p.frame = p.frame[:p.ports[0].Reap(p.frame[:1])]
		for i := range p.frame {
			p.frame[i].Len, p.frame[i].Options = p.size, 0
		}
	}
	return moved, nil
}

// note records the expected echo.
func (p *pinger) note(b []byte, now time.Duration) {
	sequence, stamp, ours := read(b)
	switch {
	case !ours:
	case p.waiting && sequence == p.sequence:
		p.waiting = false
		p.hist.Record(uint64(now) - stamp)
	default:
		p.late++
	}
}

// drain waits for the last echo.
func (p *pinger) drain() error {
	for p.waiting && time.Since(p.start)-p.sent < giveUp {
		if _, err := p.receive(); err != nil {
			return err
		}
		if p.waiting {
			p.job.workers[0].waiter.wait(longest)
		}
	}
	if p.waiting {
		p.lost++
	}
	return nil
}
