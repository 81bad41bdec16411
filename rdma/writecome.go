package rdma

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/umem"
)

// ErrPeer says that the peer broke the protocol.
var ErrPeer = errors.New("the peer breaks the protocol")

// absorb takes what came from the peer, credits and messages, at most as much as there are
// receives.
func (p *WritePort) absorb() {
	for left := p.control.receives; left > 0; {
		batch := p.came.next(min(left, batchSize))
		if len(batch) == 0 {
			break
		}
		for i := range batch {
			p.comes(&batch[i])
		}
		left -= len(batch)
	}
	if p.came.err != nil {
		p.fail(p.came.err)
	}
	if p.cause == nil {
		if err := p.control.post(); err != nil {
			p.fail(err)
		}
	}
}

func (p *WritePort) comes(c *WorkCompletion) {
	if c.Status != Success {
		p.stats.failed(c.Status)
		p.blame(c)
	}
	if p.cause != nil {
		return
	}
	var err error
	switch {
	case c.Kind == ReceivedWrite && c.Flags&HasImmediate != 0:
		b := c.Immediate()
		err = p.arrive(binary.BigEndian.Uint32(b[:]), c.Length)
	case c.Kind == Received && c.Flags&HasImmediate == 0:
		err = p.credit(p.control.bytes(int(c.ID))[:min(c.Length, controlBytes)])
	default:
		err = fmt.Errorf("%v with flags %#x", c.Kind, uint32(c.Flags))
	}
	if err != nil {
		p.fail(fmt.Errorf("queue pair %d: %w: %w", p.out.qpn, ErrPeer, err))
		return
	}
	p.control.again(c.ID)
}

// blame ends the connection for a completion that did not succeed.
func (p *WritePort) blame(c *WorkCompletion) {
	switch {
	case p.cause == nil:
		p.fail(c.Err())
	case c.Status != WorkFlushed && errors.Is(p.cause, WorkFlushed):
		p.cause = c.Err() // the first one polled is not always the first one
	}
}

// arrive takes a message that the peer wrote into a slot.
func (p *WritePort) arrive(n, length uint32) error {
	if n >= uint32(len(p.slots.list)) {
		return fmt.Errorf("a message in slot %d of %d", n, len(p.slots.list))
	}
	s := &p.slots.list[n]
	switch {
	case !s.told:
		return fmt.Errorf("a message of %d bytes in slot %d, which has no credit", length, n)
	case length > s.length:
		return fmt.Errorf("a message of %d bytes in slot %d, which has a credit for %d", length, n, s.length)
	}
	p.stats.count.received++
	p.stats.count.bytesReceived += uint64(length)
	p.stats.count.immediates++
	f := umem.Frame{Addr: s.addr, Len: length}
	p.slots.give(n)
	if p.config.Strict {
		p.leaving.push(f)
		return nil
	}
	p.grants.Release(f.Addr)
	p.arrived.push(f)
	return nil
}

// credit takes credits of the peer's.
func (p *WritePort) credit(b []byte) error {
	n, err := readCreditHeader(b)
	if err != nil {
		return err
	}
	for i := range n {
		c, err := readCredit(b, i)
		if err == nil {
			err = p.checkCredit(c)
		}
		if err != nil {
			return err
		}
		p.theirs.push(c)
	}
	return nil
}

func (p *WritePort) checkCredit(c credit) error {
	switch {
	case c.slot >= uint32(len(p.theirs.have)):
		return fmt.Errorf("a credit for slot %d of %d", c.slot, len(p.theirs.have))
	case p.theirs.have[c.slot]:
		return fmt.Errorf("a second credit for slot %d", c.slot)
	case c.length < p.config.Message:
		return fmt.Errorf("a credit for %d bytes: messages have up to %d", c.length, p.config.Message)
	}
	return nil
}

// revoke goes on with messages that wait for the end of their grants, in order.
func (p *WritePort) revoke() {
	p.collect()
	if p.cause != nil {
		return
	}
	for p.asked != p.leaving.tail {
		err := p.grants.Revoke(p.leaving.at(p.asked).Addr)
		if errors.Is(err, ErrGrantsBusy) {
			break
		}
		if err != nil {
			p.fail(err)
			return
		}
		p.asked++
	}
	if err := p.grants.Post(); err != nil {
		p.fail(err)
		return
	}
	for p.leaving.head != p.asked && p.grants.Revoked(p.leaving.at(p.leaving.head).Addr) {
		var f [1]umem.Frame
		p.leaving.pop(f[:])
		p.arrived.push(f[0])
	}
}

// collect takes all completions of the send queue.
func (p *WritePort) collect() {
	for {
		batch := p.sent.next(batchSize)
		if len(batch) == 0 {
			break
		}
		for i := range batch {
			p.sendDone(&batch[i])
		}
	}
	if p.sent.err != nil {
		p.fail(p.sent.err)
	}
	if s := p.out; p.cause != nil && s.underWay() == 0 && s.len() > 0 {
		s.fail(s.made, s.tail, unix.ECANCELED)
		p.stats.retire(s, s.tail, &p.drained)
	}
}

func (p *WritePort) sendDone(c *WorkCompletion) {
	if c.Status != Success {
		p.stats.failed(c.Status)
	}
	if !p.grants.Done(c) {
		p.stats.retire(p.out, p.out.complete(c), &p.drained)
	}
	if c.Status != Success {
		p.blame(c)
	}
}
