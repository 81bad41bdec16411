package main

import (
	"fmt"
	"time"

	"github.com/unifiedd/unifiedd/umem"
	"github.com/unifiedd/unifiedd/xdp"
)

// sender sends packets, at a rate or as fast as it goes.
type sender struct {
	job      *job
	port     *xdp.Port
	region   *umem.Region
	idle     []umem.Frame // composed packets that can be sent
	size     uint32
	sequence uint64
	rate     float64 // packets per second of this port; zero: no limit
	start    time.Time
}

func newSender(j *job, p *xdp.Port, h hand, ports int) (*sender, error) {
	o := &j.session.options
	s := &sender{job: j, port: p, region: j.session.region, size: uint32(o.size), rate: o.rate / float64(ports)}
	s.idle = make([]umem.Frame, min(j.session.share(), p.Limits().Send))
	s.idle = s.idle[:h.holder.Take(s.idle)]
	s.idle = s.idle[:len(s.idle):len(s.idle)]
	for i := range s.idle {
		s.idle[i].Len = s.size
		compose(s.region.Bytes(s.idle[i]), o.to, j.session.mac, uint16(i))
	}
	return s, nil
}

// turn sends a batch, or what is due of it, and takes back what was sent.
func (s *sender) turn() (int, error) {
	want := min(batch, len(s.idle))
	if s.rate > 0 {
		want = min(want, s.dueNow())
	}
	if want > 0 {
		want = s.job.claim(want)
	}
	taken := 0
	if want > 0 {
		full := s.idle[len(s.idle)-want:]
		for i := range full {
			s.sequence++
			number(s.region.Bytes(full[i]), s.sequence, 0)
		}
		taken = s.port.Send(full) // there is room: no more frames than the ring has entries
		s.idle = s.idle[:len(s.idle)-taken]
	}
	err := s.port.Kick()
	s.reap()
	return taken, err
}

// dueNow is how many packets the rate wants now. What was missed for more than a
// ring's worth is forgone.
func (s *sender) dueNow() int {
	now := time.Now()
	if s.start.IsZero() {
		s.start = now
	}
	behind := now.Sub(s.start).Seconds()*s.rate - float64(s.sequence)
	if most := float64(cap(s.idle)); behind > most {
		s.start = s.start.Add(time.Duration((behind - most) / s.rate * 1e9))
		behind = most
	}
	return int(behind)
}

// reap takes sent frames back. Their addresses come back, and their length is known.
func (s *sender) reap() {
	at := len(s.idle)
	n := s.port.Reap(s.idle[at:cap(s.idle)])
	s.idle = s.idle[:at+n]
	for i := at; i < at+n; i++ {
		s.idle[i].Len, s.idle[i].Options = s.size, 0
	}
}

// patience is the time until the next packet is due.
func (s *sender) patience() time.Duration {
	switch {
	case len(s.idle) == 0:
		return soon
	case s.rate > 0:
		next := s.start.Add(time.Duration(float64(s.sequence+1) / s.rate * 1e9))
		return time.Until(next)
	}
	return 0
}

// soon is how long sent frames may be left with the kernel: it does not say when it
// is done with them.
const soon = time.Millisecond

// drain waits for the kernel to be done with what was sent.
func (s *sender) drain() error {
	for range drains {
		if len(s.idle) == cap(s.idle) {
			return nil
		}
		if err := s.port.Kick(); err != nil {
			return err
		}
		time.Sleep(soon)
		s.reap()
	}
	return fmt.Errorf("send on queue %d: the kernel still has %d packets after %v", s.port.Queue(), cap(s.idle)-len(s.idle), drains*soon)
}

// drains is how often the kernel is given a moment to be done.
const drains = 1000
