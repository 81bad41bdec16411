package stream

import (
	"errors"
	"fmt"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/internal/fifo"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/mr"
	"github.com/unifiedd/unifiedd/umem"
)

// Receiving by WRITE. With ReceiverConfig.Write a credit is a frame or extent. The receiver grants
// it to the peer. The peer writes one message into it and reports it by an immediate. The receiver
// then revokes the grant, and only afterwards reads the message, because the peer can no longer
// change it.
//
// Sequences after session.taken: up to asked the grants are being revoked; up to came the immediate
// has arrived; up to peer.saidLimit the peer knows the address; up to made the frame is granted; up
// to peer.limit there is a frame. The slot of a sequence is the sequence modulo the window.

// granted is the memory that one peer may write.
type granted struct {
	grants            *mr.Cache
	slots             []writable
	made, came, asked uint64
	ended             bool // all grants are closed
}

// writable is the memory of one credit.
type writable struct {
	frame  umem.Frame // for the message; Len is the length written
	credit protocol.Credit
}

func newGranted(g *mr.Cache, window int, taken uint64) *granted {
	return &granted{grants: g, slots: make([]writable, window), made: taken, came: taken, asked: taken}
}

func (g *granted) number(sequence uint64) uint32 { return uint32(sequence % uint64(len(g.slots))) }

func (g *granted) at(sequence uint64) *writable { return &g.slots[g.number(sequence)] }

// close revokes all grants. The queue pair is in Error, or about to be closed.
func (g *granted) close() error {
	err := g.grants.Close()
	g.ended = err == nil
	return err
}

// grantRequests bounds the work requests for the grants of one peer in flight.
const grantRequests = 64

// openWrites takes the resources for receiving by WRITE: frames for the receives that immediates
// consume, a holder for frames that peers may write, and a registration for binding windows.
func (r *Receiver) openWrites() (err error) {
	c := &r.config
	r.free = fifo.New[umem.Frame](r.depth)
	if r.granted, err = c.Worker.Book().NewHolder(umem.OwnerGranted, "granted by receiver "+c.Name); err != nil {
		return err
	}
	device := c.Endpoint.Device.Capabilities()
	if most := max(device.MaxMemoryWindows, device.MaxMemoryRegions); c.Peers*c.Window > most {
		return fmt.Errorf("%d peers with a window of %d need a grant for each message, and the device has %d: lower either", c.Peers, c.Window, most)
	}
	if device.WindowsType2 {
		if r.bindable, err = c.Endpoint.Domain.Register(r.region, rdma.LocalWrite|rdma.BindWindows); err != nil {
			return err
		}
	}
	notes := make([]umem.Frame, min(c.Peers*c.Window, r.depth))
	n := c.Worker.Take(notes)
	posted := r.port.Supply(notes[:n])
	c.Worker.Give(notes[posted:n])
	if posted < len(notes) {
		return fmt.Errorf("the pool has %d of %d frames for the receives that immediates take: open a larger region, or lower the window", posted, len(notes))
	}
	return nil
}

// newGrants makes the grants of one peer's queue pair.
func (r *Receiver) newGrants(q rdma.QueuePair) (*mr.Cache, error) {
	e := r.config.Endpoint
	return mr.New(mr.Config{QueuePair: q, Domain: e.Domain, Region: r.region, Memory: r.bindable, Most: r.config.Window, Requests: grantRequests,
		Register: r.bindable == nil})
}

// keep takes frames into which peers will write, until one lacks room, and gives peers credits for
// them.
func (r *Receiver) keep(empty []umem.Frame) int {
	for n, f := range empty {
		start, room := r.region.Start(f)
		if room < uint64(r.config.Landing)+uint64(r.config.Message) {
			empty = empty[:n]
			break
		}
		r.free.Push(umem.Frame{Addr: start + uint64(r.config.Landing)})
	}
	r.posted += len(empty)
	r.available += len(empty)
	if len(empty) > 0 {
		r.grant()
	}
	return len(empty)
}

// assign gives a peer frames for its next credits.
func (r *Receiver) assign(p *peer, n int) {
	for i := range n {
		r.free.Read(r.one[:])
		r.config.Worker.PassTo(r.granted, r.one[:])
		p.granted.at(p.limit + 1 + uint64(i)).frame = r.one[0]
	}
}

// unassign takes back the frames that a peer has not written. The peer must no longer have access
// to them.
func (r *Receiver) unassign(p *peer) {
	for ; p.limit > p.session.taken; p.limit-- {
		f := p.granted.at(p.limit).frame
		r.one[0] = umem.Frame{Addr: f.Addr}
		r.granted.PassTo(r.config.Worker, r.one[:])
		r.free.Push(r.one[0])
		r.available++
	}
}

// extend grants the frames of a peer's credits. It clears the header of an earlier message, so that
// a frame without a new message has none.
func (r *Receiver) extend(p *peer) {
	g := p.granted
	for p.state == connected && g.made < p.limit {
		w := g.at(g.made + 1)
		clear(r.region.At(w.frame.Addr, protocol.HeaderLen))
		given, err := g.grants.Grant(w.frame.Addr, uint64(r.config.Message), rdma.RemoteWrite)
		if err != nil {
			r.endGrant(p, err)
			return
		}
		w.credit = protocol.Credit{Addr: given.Addr, RKey: given.RKey, Slot: g.number(g.made + 1), Count: 1, Size: r.config.Message}
		g.made++
		r.stats.own.grants++
	}
}

// endGrant handles a failure to make or revoke a grant. If the grants are busy, the receiver tries
// again later; otherwise it loses the peer.
func (r *Receiver) endGrant(p *peer, err error) {
	if err != nil && !errors.Is(err, mr.ErrBusy) {
		r.lose(p, err)
	}
}

// absorbNotes processes immediates, and messages whose grants are revoked. It returns the number of
// both.
func (r *Receiver) absorbNotes() (moved int) {
	r.reap()
	n := r.port.Recv(r.batch[:])
	for _, f := range r.batch[:n] {
		r.note(f)
	}
	r.port.Supply(r.batch[:n])
	moved = n
	for _, p := range r.peers {
		moved += r.handOut(p)
	}
	return moved
}

// note processes one immediate.
func (r *Receiver) note(f umem.Frame) {
	p, side := r.peerOf(f), r.region.Side(f)
	switch {
	case f.Options&umem.Failed != 0:
		r.receiveFailed(p)
	case p == nil || p.state.ended():
		r.stats.own.dropped++
	case f.Len > 0: // a SEND
		r.refuse(p, protocol.BadKind)
	default:
		if why := r.written(p, side.Target, side.Block); why != protocol.None {
			r.refuse(p, why)
		}
	}
}

// written records that a peer has written length bytes into a slot, if the peer may do that.
func (r *Receiver) written(p *peer, slot uint32, length uint64) protocol.Reason {
	g := p.granted
	next, window := g.number(g.came+1), uint32(len(g.slots))
	switch told := uint32(p.saidLimit - g.came); {
	case slot >= window || (slot+window-next)%window >= told:
		return protocol.NotGranted
	case slot != next:
		return protocol.BadSequence
	case length < protocol.HeaderLen:
		return protocol.BadLength
	case length > uint64(r.config.Message):
		return protocol.TooLong
	}
	g.at(g.came + 1).frame.Len = uint32(length)
	g.came++
	return protocol.None
}

// handOut revokes the grants of messages that have arrived, and accepts messages whose grants are
// revoked. It returns the number of accepted messages.
func (r *Receiver) handOut(p *peer) (moved int) {
	g := p.granted
	if g.ended {
		g.asked = g.came
	}
	for g.asked < g.came && !p.state.ended() {
		if err := g.grants.Revoke(g.at(g.asked + 1).frame.Addr); err != nil {
			r.endGrant(p, err)
			break
		}
		g.asked++
	}
	if !g.ended {
		r.endGrant(p, g.grants.Post())
	}
	for !p.state.ended() && r.unreachable(p) {
		if !r.takeWritten(p) {
			return moved
		}
		moved++
	}
	return moved
}

// unreachable reports whether the next message has arrived and its grant is revoked.
func (r *Receiver) unreachable(p *peer) bool {
	g, next := p.granted, p.session.taken+1
	return next <= g.asked && (g.ended || g.grants.Revoked(g.at(next).frame.Addr))
}

// takeWritten checks the next message, which the peer can no longer change. It passes the message
// on or ends the peer.
func (r *Receiver) takeWritten(p *peer) bool {
	s := p.session
	f := p.granted.at(s.taken + 1).frame
	d, why := r.check(r.region.Bytes(f))
	switch {
	case why == protocol.BadMagic && r.untouched(f):
		why = protocol.NotWritten
	case why != protocol.None:
	case d.Session != s.id:
		why = protocol.BadSession
	case d.Sequence != s.taken+1:
		why = protocol.BadSequence
	}
	if why != protocol.None {
		r.refuse(p, why)
		return false
	}
	r.one[0] = f
	r.granted.PassTo(r.config.Worker, r.one[:])
	r.posted--
	side := r.region.Side(f)
	side.Target, side.Block = 0, 0
	r.accept(p, f)
	return true
}

// untouched reports whether a header is as extend left it.
func (r *Receiver) untouched(f umem.Frame) bool {
	for _, b := range r.region.At(f.Addr, protocol.HeaderLen) {
		if b != 0 {
			return false
		}
	}
	return true
}

// waits reports whether Recv has messages for which no completion will come.
func (r *Receiver) waits() bool {
	if r.granted == nil {
		return false
	}
	for _, p := range r.peers {
		if p.granted != nil && !p.state.ended() && (r.unreachable(p) || p.granted.asked < p.granted.came) {
			return true
		}
	}
	return false
}

// credits writes the peer's progress message with its next credits into message, and returns the
// length.
func (r *Receiver) credits(p *peer, message []byte, m *protocol.Progress) uint32 {
	g := p.granted
	n := uint32(min(g.made-p.saidLimit, protocol.MaxCredits))
	m.Limit = p.saidLimit + uint64(n)
	if n == 0 {
		protocol.PutProgress(message, m)
		return protocol.HeaderLen
	}
	all := protocol.CreditsOf(message, n)
	for i := range n {
		protocol.PutCredit(all[i*protocol.CreditLen:], &g.at(p.saidLimit+1+uint64(i)).credit)
	}
	protocol.PutGrant(message, &protocol.Grant{Progress: *m, Credits: n, Checksum: protocol.Checksum(all), First: p.saidLimit + 1})
	return protocol.HeaderLen + n*protocol.CreditLen
}

// inspect ends a peer whose queue pair is in Error although no local request failed: its device
// tried an access that was not granted.
func (r *Receiver) inspect(p *peer) error {
	if r.closed || p.state.ended() || p.stopped {
		return nil
	}
	state, err := p.queue.State()
	if err != nil || state != rdma.Error {
		return err
	}
	r.drain()
	r.reap()
	if cause := r.port.Cause(p.slot); cause != nil {
		r.lose(p, cause)
	} else {
		r.refuse(p, protocol.NotGranted)
	}
	return nil
}
