package transfer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/nvme"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/connect"
	"github.com/unifiedd/unifiedd/rdma/mr"
	"github.com/unifiedd/unifiedd/umem"
)

// session is a connection of a sender. Its thread moves each piece and hole through the same steps, in the order of
// their offsets:
//
//	arrived ─▶ revoking ─▶ hashing ─▶ folded ─▶ begun ─▶ retired
//
// The sender's right to the memory of a piece ends before it is hashed. It is written once its checksum is right. Writes
// complete in any order, and retired is the longest run of them. Each step has a number: that of the first item which it
// has not reached.
type session struct {
	receiver *Receiver
	offer    *connect.Request
	log      *slog.Logger
	asked    request
	owner    uint64
	end      context.CancelCauseFunc
	over     chan struct{} // closed when it has ended

	connected bool // the sender was let in

	dest    *destination
	book    *umem.Book
	worker  *umem.Holder
	granted *umem.Holder
	control *umem.Holder
	queue   *nvme.Queue
	target  uint32
	align   uint64
	domain  rdma.ProtectionDomain
	memory  rdma.MemoryRegion
	link    *link
	slots   []slot
	items   []item

	arrived, revoking, hashing, folded, begun, retired uint64
	offered, freed, pieces                             uint64 // slots that were granted, and that are free again; pieces
	at                                                 uint64 // offset of the next item
	digest                                             *digest
	ended                                              bool     // the sender has sent everything
	want                                               [32]byte // the sender's hash of the whole

	steps    [8]func() (bool, error) // of a round
	recorder *recorder
	progress progress
	heardAt  time.Time
	now      time.Time
	one      [1]umem.Frame
	results  [1]nvme.FlushResult
	flying   int // writes, flushes and zeroings that the disk has
}

// slot is the memory of a piece.
type slot struct {
	extent umem.Frame
	work   *hashing
}

// item is a piece or a hole.
type item struct {
	at, length uint64
	hole       bool
	holes      bool
	slot       int
	sum        uint32
	folded     uint64 // of a hole: bytes that are hashed
	run        uint64 // of a piece with holes: bytes that are written or passed over
	written    bool
	state      []byte // of the hash behind it
}

// progress says how far the copy is safe.
type progress struct {
	written  uint64 // all before is written
	state    []byte // of the hash there
	flushing bool
	lost     error  // a flush that has failed: what it covers may not be durable
	flushed  uint64 // what the flush covers that is under way, or was the last
	behind   []byte // state of the hash there
	samples  [32]byte
	noted    uint64 // all before is durable, and recorded
	told     uint64 // the sender knows
	last     time.Time
	final    finalStep
}

// finalStep is how far the end of a copy is.
type finalStep uint8

const (
	notFinal   finalStep = iota
	committing           // the recorder completes the copy
	telling              // the sender is told
	complete
)

// Intervals of flushes.
const (
	flushEvery = time.Second
	flushBytes = 256 << 20
)

// extraMessages are the messages that may be under way besides those of pieces.
const extraMessages = 8

// run connects the sender, and returns when its connection has ended: nil if the copy is complete.
func (s *session) run(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, s.release()) }()
	conn, err := s.open()
	if err != nil {
		s.refuse(err)
		return err
	}
	s.connected = true
	s.receiver.count.connections.Add(1)
	s.receiver.count.resumed.Add(s.dest.begin)
	s.log.Info("a sender is connected", "name", s.dest.name, "size", s.asked.size, "begin", s.dest.begin)
	start := time.Now()
	left := make(chan error, 1)
	go func() { left <- hear(conn) }()
	cause := s.loop(ctx, left)
	if err := s.link.close(); err != nil {
		return errors.Join(cause, err)
	}
	err = s.settle(cause)
	s.tell(conn, err)
	if err == nil {
		s.completed(start, cause == nil)
	}
	return err
}

// completed counts and reports the copy. If the sender does not know, the record stays for its next connection.
func (s *session) completed(start time.Time, knows bool) {
	r := s.receiver
	r.count.complete.Add(1)
	if knows {
		if err := s.dest.forget(); err != nil {
			s.log.Warn("the record of a complete copy was not removed", "err", err)
		}
	}
	c := Copy{Name: s.dest.name, Peer: s.offer.Peer().String(), Size: s.asked.size, Resumed: s.dest.begin, Took: time.Since(start), Digest: s.want}
	s.log.Info("a copy is complete", "name", c.Name, "size", c.Size, "resumed", c.Resumed, "took", c.Took)
	if r.config.Done != nil {
		r.config.Done(c)
	}
}

// open opens the destination, makes what the connection needs, and connects the queue pair.
func (s *session) open() (*connect.Conn, error) {
	r := s.receiver
	var err error
	if s.dest, err = r.place.open(s.asked, s.owner); err != nil {
		return nil, err
	}
	if s.dest.again != "" {
		s.log.Warn("an earlier copy is not continued, and begins again", "name", s.dest.name, "err", s.dest.again)
	}
	s.at, s.digest = s.dest.begin, newDigest()
	if err := s.digest.restore(s.at, s.dest.hashed); err != nil {
		return nil, errors.Join(err, s.dest.discard())
	}
	p := &s.progress
	p.written, p.flushed, p.noted, p.told, p.last = s.at, s.at, s.at, s.at, time.Now()
	p.state = s.digest.save(make([]byte, 0, maxHashed))
	p.behind = append(make([]byte, 0, maxHashed), p.state...)
	if err := s.openDisk(); err != nil {
		return nil, err
	}
	if err := s.openLink(); err != nil {
		return nil, err
	}
	s.recorder = newRecorder()
	s.steps = [...]func() (bool, error){s.revoke, s.hash, s.fold, s.write, s.reap, s.grant, s.flush, s.record}
	return s.connect()
}

// openDisk makes the disk queue, and takes the extents.
func (s *session) openDisk() (err error) {
	r := s.receiver
	e, n := r.config.Endpoint, r.config.Window
	s.book = e.Region.NewBook("receive " + s.dest.name)
	for _, h := range []struct {
		to    **umem.Holder
		owner umem.Owner
	}{{&s.worker, umem.OwnerWorker}, {&s.granted, umem.OwnerGranted}, {&s.control, umem.OwnerRDMA}} {
		if *h.to, err = s.book.NewHolder(h.owner, "receive "+s.dest.name); err != nil {
			return err
		}
	}
	extents := make([]umem.Frame, n)
	if got := s.worker.TakeExtents(extents); got < n {
		s.worker.Give(extents[:got])
		return fmt.Errorf("%w: the region has %d of %d extents", protocol.Busy, got, n)
	}
	for _, f := range extents {
		s.slots = append(s.slots, slot{extent: f, work: newHashing(r.piece)})
	}
	s.items = make([]item, 2*n+extraMessages)
	for i := range s.items {
		s.items[i].state = make([]byte, 0, maxHashed)
	}
	if s.queue, err = nvme.Open(nvme.Config{Worker: s.worker, Name: "receive", Depth: n, Targets: 1}); err != nil {
		return err
	}
	if s.target, err = s.queue.Add(s.dest.target); err != nil {
		return err
	}
	if s.align = uint64(s.dest.target.Alignment().Offset); s.align > blockSize || uint64(s.dest.target.Alignment().Memory) > blockSize {
		return fmt.Errorf("%q needs an alignment of %v, more than %d", s.dest.name, s.dest.target.Alignment(), blockSize)
	}
	return nil
}

// openLink makes the queue pair in a protection domain of its own, so that no other sender can use its keys.
func (s *session) openLink() (err error) {
	e, n := s.receiver.config.Endpoint, s.receiver.config.Window
	if s.domain, err = e.Device.NewProtectionDomain(); err != nil {
		return err
	}
	windows := e.Device.Capabilities().WindowsType2
	access := rdma.LocalWrite
	if windows {
		access |= rdma.BindWindows
	}
	if s.memory, err = s.domain.Register(e.Region, access); err != nil {
		return err
	}
	requests := 2*n + 2
	s.link, err = newLink(linkConfig{at: e, domain: s.domain, memory: s.memory, holder: s.control, receives: len(s.items), sends: n + extraMessages, grants: requests,
		heard: s.heard})
	if err != nil {
		return err
	}
	s.link.grants, err = mr.New(mr.Config{QueuePair: s.link.pair, Domain: s.domain, Region: e.Region, Memory: s.memory, Most: n, Requests: requests, Register: !windows})
	return err
}

// connect answers the sender.
func (s *session) connect() (*connect.Conn, error) {
	r := s.receiver
	e := connect.End{Queue: s.link.pair}
	var err error
	if e.Settings, err = r.config.Endpoint.Settings(s.offer.Local(), s.offer.Remote().Parameters.GID.Addr()); err != nil {
		return nil, err
	}
	e.Settings.Access = rdma.RemoteWrite // of what is granted
	if e.Parameters, err = s.link.prepare(r.config.Endpoint.Device, e.Settings); err != nil {
		return nil, err
	}
	a := answer{piece: uint32(r.piece), window: uint32(r.config.Window), session: s.asked.session, size: s.asked.size, next: s.dest.begin, hashed: s.progress.state}
	if e.Hello, err = a.append(nil); err != nil {
		return nil, err
	}
	return s.offer.Accept(e)
}

// heard processes a message of the sender.
func (s *session) heard(m *message) (keep bool, err error) {
	s.heardAt = s.now
	switch {
	case m.kind == kindAlive:
		return false, nil
	case m.kind == kindAbort:
		return false, &abortError{protocol.Reason(min(m.number, 255))}
	case s.ended:
		return false, fmt.Errorf("%w: kind %d after the end", protocol.BadKind, m.kind)
	case m.kind == kindEnd:
		if m.at != s.asked.size || s.at != m.at {
			return false, fmt.Errorf("%w: the end of %d bytes after %d of %d", protocol.BadSequence, m.at, s.at, s.asked.size)
		}
		s.ended, s.want = true, m.digest
		return false, nil
	case m.kind != kindPiece && m.kind != kindHole:
		return false, fmt.Errorf("%w: kind %d", protocol.BadKind, m.kind)
	}
	return true, s.append(m)
}

// append adds a piece or hole. There is room: each item keeps a receive.
func (s *session) append(m *message) error {
	switch end := m.at + m.length; {
	case m.at != s.at:
		return fmt.Errorf("%w: byte %d follows byte %d", protocol.BadSequence, m.at, s.at)
	case m.length == 0 || m.length > s.asked.size-m.at:
		return fmt.Errorf("%w: %d bytes from %d on, of %d", protocol.OutOfRange, m.length, m.at, s.asked.size)
	case end%leafSize != 0 && end != s.asked.size:
		return fmt.Errorf("%w: a piece or hole ends at byte %d", protocol.Unaligned, end)
	}
	i := item{at: m.at, length: m.length, hole: m.kind == kindHole, holes: m.holes, sum: m.value}
	if !i.hole {
		n := s.pieces % uint64(len(s.slots))
		switch {
		case m.length > s.receiver.piece:
			return fmt.Errorf("%w: a piece of %d bytes", protocol.TooLong, m.length)
		case s.pieces == s.offered || uint64(m.number) != n:
			return fmt.Errorf("%w: slot %d", protocol.NotGranted, m.number)
		}
		i.slot = int(n)
		s.pieces++
		s.receiver.count.bytes.Add(m.length)
	} else {
		s.receiver.count.holes.Add(m.length)
	}
	at := s.item(s.arrived)
	i.state = at.state
	*at = i
	s.arrived++
	s.at += m.length
	return nil
}

func (s *session) item(n uint64) *item { return &s.items[n%uint64(len(s.items))] }

// loop is the life of the connection. It returns nil when the copy is complete, and the sender knows.
func (s *session) loop(ctx context.Context, left <-chan error) error {
	rest := newRest()
	s.heardAt = time.Now()
	for {
		s.now = time.Now()
		moved, err := s.round()
		switch {
		case err != nil:
			return err
		case s.progress.final == complete:
			return s.finalMessage(left)
		case s.now.Sub(s.heardAt) > s.receiver.config.Timeout && s.progress.final == notFinal:
			return errSilent
		}
		select {
		case err := <-left:
			return err
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), errReplaced) {
				return errReplaced
			}
			return protocol.Closing
		default:
		}
		rest.round(s.now, moved)
	}
}

// finalMessage waits until the sender has said goodbye: it then knows that the copy is complete. The error says that it may
// not know.
func (s *session) finalMessage(left <-chan error) error {
	late := time.NewTimer(finalTime)
	defer late.Stop()
	select {
	case err := <-left:
		if errors.Is(err, errLeft) {
			return nil
		}
		return err
	case <-late.C:
		return errSilent
	}
}

// round does what can be done now, and reports whether that was something.
func (s *session) round() (moved bool, err error) {
	n, err := s.link.poll()
	if err != nil {
		return false, err
	}
	for _, step := range s.steps {
		did, err := step()
		if err != nil {
			return moved, err
		}
		moved = moved || did
	}
	if err := s.queue.Kick(); err != nil {
		return moved, err
	}
	if errors.Is(s.link.cause, rdma.WorkFlushed) { // nothing of ours has failed
		return moved, fmt.Errorf("%w: the device has refused what the sender tried: %w", protocol.NotGranted, s.link.cause)
	}
	return moved || n > 0, s.link.cause
}

// revoke ends the sender's rights to pieces that have arrived.
func (s *session) revoke() (moved bool, err error) {
	for ; s.revoking < s.arrived; s.revoking++ {
		if i := s.item(s.revoking); !i.hole {
			if err := s.link.grants.Revoke(s.slots[i.slot].extent.Addr); errors.Is(err, mr.ErrBusy) {
				break
			} else if err != nil {
				return moved, err
			}
		}
		moved = true
	}
	return moved, s.link.grants.Post()
}

// hash hands pieces over to be hashed that the sender cannot change any more.
func (s *session) hash() (moved bool, err error) {
	for ; s.hashing < s.revoking; s.hashing++ {
		i := s.item(s.hashing)
		if !i.hole {
			w := &s.slots[i.slot]
			if !s.link.grants.Revoked(w.extent.Addr) {
				break
			}
			s.one[0] = w.extent
			s.granted.PassTo(s.worker, s.one[:])
			s.receiver.hashers.begin(w.work, s.receiver.config.Endpoint.Region.At(w.extent.Addr, i.length))
		}
		moved = true
	}
	return moved, nil
}

// fold compares checksums, and adds the hashes of pieces and holes to that of the whole.
func (s *session) fold() (moved bool, err error) {
	for ; s.folded < s.hashing; s.folded++ {
		i := s.item(s.folded)
		if i.hole {
			i.folded += s.digest.addZeros(i.length - i.folded)
			moved = true
			if i.folded < i.length {
				break
			}
		} else {
			work := s.slots[i.slot].work
			if !work.done() {
				break
			}
			if work.sum != i.sum {
				return moved, fmt.Errorf("%w: %d bytes at %d", protocol.BadPayload, i.length, i.at)
			}
			s.digest.add(i.length, work.leaves)
		}
		i.state = s.digest.save(i.state)
		moved = true
	}
	return moved, nil
}

// grant grants free slots to the sender.
func (s *session) grant() (moved bool, err error) {
	for s.offered < s.freed+uint64(len(s.slots)) && s.link.room(1) && !s.ended {
		n := s.offered % uint64(len(s.slots))
		w := &s.slots[n]
		g, err := s.link.grants.Grant(w.extent.Addr, s.receiver.piece, rdma.RemoteWrite)
		if errors.Is(err, mr.ErrBusy) {
			break
		} else if err != nil {
			return moved, err
		}
		s.one[0] = w.extent
		s.worker.PassTo(s.granted, s.one[:])
		s.link.send(&message{kind: kindGrant, at: g.Addr, length: g.Length, number: uint32(n), value: g.RKey})
		s.offered++
		moved = true
	}
	return moved, nil
}
