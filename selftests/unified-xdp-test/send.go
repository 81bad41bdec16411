package main

import (
	"fmt"
	"time"

	"github.com/unifiedd/unifiedd/umem"
	"github.com/unifiedd/unifiedd/xdp"
)

// sender sends packets, at a rate or as fast as possible.
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

// turn sends a batch, or the number that the rate requires now, and takes back sent frames.
func (s *sender) turn() (time.Duration, error) {
	want, due := min(batch, len(s.idle)), time.Duration(0)
	if s.rate > 0 {
		var n int
		n, due = s.dueNow()
		want = min(want, n)
	}
	if want > 0 {
		s.send(s.job.claim(want))
	}
	err := s.port.Kick()
	s.reap()
	switch {
	case want > 0:
		return 0, err
	case len(s.idle) == 0:
		return soon, err
	}
	return due, err
}

// send numbers packets and gives them to the port. The port has room: there are no more frames than
// its ring has entries.
func (s *sender) send(n int) {
	full := s.idle[len(s.idle)-n:]
	for i := range full {
		number(s.region.Bytes(full[i]), s.sequence+uint64(i), 0)
	}
	taken := s.port.Send(full)
	s.sequence += uint64(taken)
	s.idle = append(s.idle[:len(s.idle)-n], full[taken:]...)
}

// dueNow returns how many packets the rate requires now, and how long until the next. If the sender
// is more than a ring behind, it skips the packets beyond that.
func (s *sender) dueNow() (n int, next time.Duration) {
	now := time.Now()
	if s.start.IsZero() {
		s.start = now
	}
	wanted := now.Sub(s.start).Seconds() * s.rate
	behind := wanted - float64(s.sequence)
	if most := float64(cap(s.idle)); behind > most {
		s.start = s.start.Add(time.Duration((behind - most) / s.rate * 1e9))
		behind = most
	}
	if behind < 1 {
		next = time.Duration((1 - behind) / s.rate * 1e9)
	}
	return int(behind), max(next, 1)
}

// reap takes sent frames back. The port returns their addresses, and the sender knows their length.
func (s *sender) reap() {
	at := len(s.idle)
	n := s.port.Reap(s.idle[at:cap(s.idle)])
	s.idle = s.idle[:at+n]
	for i := at; i < at+n; i++ {
		s.idle[i].Len, s.idle[i].Options = s.size, 0
	}
}

// soon is how long sent frames may stay with the kernel. The kernel does not signal when it is done
// with them.
const soon = time.Millisecond

// drain waits until the kernel has completed everything.
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

// drains is how often drain waits for the kernel.
const drains = 1000
