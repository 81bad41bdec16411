package rdma

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/umem"
)

// Supply grants frames and extents to the peer, one message each, when Kick is called. One that the
// longest message does not fit into comes back failed.
func (p *WritePort) Supply(empty []umem.Frame) int {
	if p.closed || p.cause != nil {
		return 0
	}
	n := min(len(empty), p.config.Slots-p.held)
	for _, f := range empty[:n] {
		start, room := p.region.Start(f)
		at := start + uint64(p.config.Landing)
		if room < uint64(p.config.Landing)+uint64(p.config.Message) {
			p.arrived.push(umem.Frame{Addr: at}.WithError(unix.EMSGSIZE))
			continue
		}
		p.slots.take(at, uint32(room)-p.config.Landing)
	}
	p.held += n
	p.worker.PassTo(p.granted, empty[:n])
	return n
}

// Recv gives messages.
func (p *WritePort) Recv(dst []umem.Frame) int {
	if p.closed {
		return 0
	}
	if p.arrived.len() < len(dst) {
		p.absorb()
	}
	if p.sent.left() || p.leaving.len() > 0 {
		p.revoke()
	}
	n := p.arrived.pop(dst)
	p.held -= n
	p.granted.PassTo(p.worker, dst[:n])
	p.publish()
	p.tell(n == 0)
	return n
}

// Send queues messages, until there are credits for them. One that cannot be sent at all
// comes back failed.
func (p *WritePort) Send(full []umem.Frame) int {
	if p.closed {
		return 0
	}
	room := min(len(full), p.sendMax-p.sending)
	whole, taken := umem.Whole(full[:room]), 0
	for taken < whole {
		n := chain(full[taken:whole])
		p.sendOne(full[taken : taken+n])
		taken += n
	}
	p.sending += taken
	p.worker.PassTo(p.holder, full[:taken])
	return taken
}

func (p *WritePort) sendOne(message []umem.Frame) {
	_, errno := p.out.measure(p.region, message)
	if p.cause != nil {
		errno = unix.ENOTCONN
	}
	if errno != 0 {
		p.stats.count.refused++
	}
	for _, f := range message {
		if errno != 0 {
			p.drained.push(f.WithError(errno))
		} else {
			p.out.push(f)
		}
	}
}

// Reap gives frames that were sent, and those that failed.
func (p *WritePort) Reap(dst []umem.Frame) int {
	if p.closed {
		return 0
	}
	if p.drained.len() < len(dst) {
		p.collect()
	}
	n := p.drained.pop(dst)
	p.sending -= n
	p.holder.PassTo(p.worker, dst[:n])
	p.publish()
	p.tell(n == 0)
	return n
}

// Kick looks for credits, and posts messages for which there are some, and credits for what
// Supply took. It is to be called once a round also when neither took anything.
func (p *WritePort) Kick() error {
	if p.closed {
		return fmt.Errorf("kick RDMA port %s: %w", p.config.Name, unix.EBADF)
	}
	p.absorb()
	if p.cause == nil {
		p.write()
		p.offer()
	}
	if p.cause == nil && len(p.out.queued) > 0 {
		if err := p.out.post(); err != nil {
			p.fail(err)
		}
	}
	p.publish()
	p.tell(false)
	if p.cause != nil {
		return fmt.Errorf("kick RDMA port %s: %w", p.config.Name, p.cause)
	}
	return nil
}

// write makes requests of messages, as far as there are credits and room.
func (p *WritePort) write() {
	for p.out.waiting() > 0 && p.theirs.len() > 0 {
		if p.out.underWay() >= p.sendMax {
			if p.collect(); p.out.underWay() >= p.sendMax {
				return
			}
		}
		frames, length := p.out.front()
		to := p.theirs.pop()
		r := SendRequest{Op: WriteImmediate, RemoteAddr: to.addr, RKey: to.rkey}
		binary.BigEndian.PutUint32(r.Immediate[:], to.slot)
		p.out.request(r, frames, length)
	}
}

// offer grants what was supplied, and tells the peer.
func (p *WritePort) offer() {
	for collected := false; p.cause == nil && p.slots.head != p.slots.tail; {
		if p.offerSome() {
			continue
		}
		if collected {
			return
		}
		p.collect()
		collected = true
	}
}

// offerSome makes one SEND of credits, and reports whether it could.
func (p *WritePort) offerSome() bool {
	buffer := p.control.free(p.out.done)
	if buffer < 0 || p.out.full() {
		return false
	}
	b, n := p.control.bytes(buffer), 0
	for n < creditsMost {
		c, ok := p.grantNext()
		if !ok {
			break
		}
		writeCredit(b, n, c)
		n++
	}
	if n == 0 {
		return false
	}
	length := writeCreditHeader(b, n)
	p.out.control(SendRequest{Op: Send}, p.control.at(buffer), length)
	p.control.use(p.out.posted)
	return true
}

// grantNext grants the next slot. A grant that the device refuses ends the connection.
func (p *WritePort) grantNext() (credit, bool) {
	n, ok := p.slots.next()
	if !ok {
		return credit{}, false
	}
	s := &p.slots.list[n]
	g, err := p.grants.Grant(s.addr, uint64(s.length), RemoteWrite)
	if err != nil {
		if !errors.Is(err, ErrGrantsBusy) {
			p.fail(err)
		}
		return credit{}, false
	}
	p.slots.told()
	return credit{slot: n, rkey: g.RKey, addr: g.Addr, length: s.length}, true
}

func (p *WritePort) publish() {
	p.stats.publish()
	p.grants.Publish()
}

// tell makes the descriptor poll readable exactly while there is something to take, or
// something that Recv or Kick could do.
func (p *WritePort) tell(asked bool) {
	if p.event.poll >= 0 {
		p.event.tell(&p.sent, &p.came, p.drained.len()+p.arrived.len() > 0 || p.able(), asked)
	}
}

// able reports whether something can go on that had to wait, or was not looked at yet: another verb
// may have taken the completions that would tell of it.
func (p *WritePort) able() bool {
	return p.cause == nil && (p.ableToRevoke() || p.ableToOffer() || p.ableToWrite())
}

func (p *WritePort) ableToRevoke() bool {
	l := &p.leaving
	return p.asked != l.tail && !p.grants.busy() || p.asked != l.head && p.grants.Revoked(l.at(l.head).Addr)
}

func (p *WritePort) ableToOffer() bool {
	return p.slots.head != p.slots.tail && !p.grants.busy() && !p.out.full() && p.control.free(p.out.done) >= 0
}

func (p *WritePort) ableToWrite() bool {
	return p.out.waiting() > 0 && p.theirs.len() > 0 && p.out.underWay() < p.sendMax
}

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
