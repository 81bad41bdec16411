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
