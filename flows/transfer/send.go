package transfer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/rdma/connect"
	"github.com/unifiedd/unifiedd/umem"
)

// sendItem is a piece or a hole on its way.
type sendItem struct {
	part
	extent umem.Frame
	work   *hashing
	folded uint64 // of a hole: bytes that are hashed
	wrote  uint64 // bytes that were posted
	open   int    // WRITEs without a completion
	read   bool
	posted bool // everything was posted
	done   bool // the receiver's device has it
}

// round is one connection of a sender. Items go through the same steps in the order of their offsets: cut, of which the
// disk then reads the pieces; posted; and done.
type round struct {
	*Sender
	link              *link
	answer            answer
	piece             uint64
	grants            []message // in the order in which they are used
	digest            *digest
	cut, posted, gone uint64 // numbers of items
	at                uint64 // offset of the next item
	reading           int
	over              bool // the receiver has the copy
	ended             bool // everything was sent
	looked, said      time.Time
	now               time.Time
	one               [1]umem.Frame
}

// Intervals of a round.
const (
	aliveEvery = 5 * time.Second
	lookEvery  = time.Second
	// reasonTime is how long the receiver has to tell why a connection has ended.
	reasonTime = 500 * time.Millisecond
)

// connection makes one connection, and returns when it ends: nil if the receiver has the copy. connected reports whether
// it was established.
func (s *Sender) connection(ctx context.Context) (connected bool, err error) {
	r := &round{Sender: s}
	conn, err := r.open(ctx)
	if err != nil {
		return false, errors.Join(refusal(err), r.close())
	}
	s.enter("")
	s.config.Log.Info("connected to the receiver", "peer", conn.Peer().String(), "size", s.request.size, "begin", r.at)
	left := make(chan error, 1)
	go func() { left <- listen(conn) }()
	err = r.loop(ctx, left)
	if cerr := r.close(); cerr != nil {
		err = &diskFault{errors.Join(err, cerr)}
	}
	_ = conn.Close() // the receiver may be gone
	return true, err
}

// refusal returns the reason with which a receiver refuses, or the error.
func refusal(err error) error {
	if connect.ReasonOf(err) == connect.ReasonRefused {
		if _, text, found := strings.Cut(err.Error(), "the peer refused: "); found {
			switch said := readReason(text); {
			case errors.Is(said, protocol.BadReserved): // the fields of the hash and of far times, before there were others
				return fmt.Errorf("%w (its release may be older and not know the hash BLAKE3, or times of modification before 1678 or after 2262: use releases on both sides that have the same)", said)
			case errors.As(said, new(protocol.Reason)):
				return said
			}
		}
	}
	return err
}

// open makes a queue pair, and connects it.
func (r *round) open(ctx context.Context) (*connect.Conn, error) {
	e, n := r.config.Endpoint, r.config.Window
	settings, err := e.SettingsTo(ctx, r.config.Address)
	if err != nil {
		return nil, err
	}
	r.link, err = newLink(linkConfig{at: e, domain: e.Domain, memory: e.Memory, holder: r.control, receives: maxGrants + extraMessages, sends: n + extraMessages,
		writes: max(2*n, leastWrites), heard: r.heard, wrote: r.wrote})
	if err != nil {
		return nil, &diskFault{err}
	}
	end := connect.End{Queue: r.link.pair, Settings: settings, Hello: r.hello}
	if end.Parameters, err = r.link.prepare(e.Device, settings); err != nil {
		return nil, err
	}
	conn, err := connect.Dial(ctx, r.config.Address, end, r.config.Connect)
	if err != nil {
		return nil, err
	}
	if err := r.begin(conn); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// maxGrants are the receives for grants. A receiver with a larger window waits until they are posted again.
const maxGrants = 64

// leastWrites are the WRITEs that may be under way, at least: those of a limited sender are short.
const leastWrites = 64

// begin reads the receiver's answer.
func (r *round) begin(conn *connect.Conn) (err error) {
	if r.answer, err = parseAnswer(conn.Remote().Hello, &r.request); err != nil {
		return err
	}
	r.piece = min(r.Sender.piece, uint64(r.answer.piece))
	r.grants = make([]message, 0, r.answer.window)
	r.at, r.digest = r.answer.next, newDigest()
	if err := r.digest.restore(r.at, r.answer.hashed); err != nil {
		return fmt.Errorf("%w: %w", protocol.BadReserved, err)
	}
	c := &r.count
	c.at.Set(r.at)
	c.durable.Set(r.at)
	if c.connections.Load() == 0 {
		c.resumed.Set(r.at)
	}
	c.connections.Add(1)
	return nil
}

// heard processes a message of the receiver.
func (r *round) heard(m *message) (keep bool, err error) {
	switch m.kind {
	case kindGrant:
		if len(r.grants) == cap(r.grants) || m.length < r.piece {
			return false, fmt.Errorf("%w: a grant of %d bytes, after %d others", protocol.BeyondCredit, m.length, len(r.grants))
		}
		r.grants = append(r.grants, *m)
	case kindDurable:
		if m.at < r.count.durable.Load() || m.at > r.at {
			return false, fmt.Errorf("%w: byte %d is durable, and %d were sent", protocol.BadSequence, m.at, r.at)
		}
		r.count.durable.Set(m.at)
	case kindComplete:
		if !r.ended || m.at != r.request.size || m.digest != r.Sender.digest {
			return false, fmt.Errorf("%w: the copy is complete, and what was sent is another", protocol.BadSequence)
		}
		r.count.durable.Set(m.at)
		r.over = true
	default:
		return false, fmt.Errorf("%w: kind %d", protocol.BadKind, m.kind)
	}
	return false, nil
}

// wrote processes the completion of a WRITE.
func (r *round) wrote(number uint64) {
	i := r.item(number)
	i.open--
	r.settle(i)
}

// settle takes the extent of a piece back once the receiver's device has all of it.
func (r *round) settle(i *sendItem) {
	if i.open > 0 || !i.posted {
		return
	}
	r.one[0] = i.extent
	r.writing.PassTo(r.worker, r.one[:])
	r.extents = append(r.extents, i.extent)
	i.done = true
}

func (r *round) item(n uint64) *sendItem { return &r.items[n%uint64(len(r.items))] }

// loop is the life of the connection.
func (r *round) loop(ctx context.Context, left <-chan error) error {
	rest := newRest()
	r.looked, r.said = time.Now(), time.Now()
	for !r.over {
		r.now = time.Now()
		moved, err := r.step()
		if err != nil {
			return r.primary(err, left)
		}
		select {
		case err := <-left:
			if n, perr := r.link.poll(); perr == nil && n > 0 && r.over {
				return nil
			}
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		default:
		}
		rest.round(r.now, moved)
	}
	return nil
}

// primary returns why the connection has ended: what the receiver says, if it does, or else what happened here.
func (r *round) primary(err error, left <-chan error) error {
	if errors.As(err, new(*diskFault)) || errors.Is(err, protocol.Changed) {
		return err
	}
	late := time.NewTimer(reasonTime)
	defer late.Stop()
	select {
	case said := <-left:
		if errors.As(said, new(*saidError)) {
			return said
		}
	case <-late.C:
	}
	return err
}

// step does what can be done now, and reports whether that was something.
func (r *round) step() (moved bool, err error) {
	n, err := r.link.poll()
	if err != nil {
		return false, &diskFault{err}
	}
	moved = n > 0
	for r.queue.Recv(r.one[:]) == 1 {
		moved = true
		if err := r.filled(r.one[0]); err != nil {
			return moved, err
		}
	}
	for _, f := range [...]func(*round) (bool, error){(*round).next, (*round).post, (*round).finish} {
		did, err := f(r)
		if err != nil {
			return moved, err
		}
		moved = moved || did
	}
	for r.gone < r.posted && r.item(r.gone).done {
		r.gone++
	}
	if err := r.queue.Kick(); err != nil {
		return moved, &diskFault{err}
	}
	return moved, r.link.cause
}

// next cuts the source into items, and begins to read those that are pieces.
func (r *round) next() (moved bool, err error) {
	for r.at < r.request.size && r.cut-r.gone < uint64(len(r.items)) && len(r.extents) > 0 {
		p, err := r.source.next(r.at, r.piece)
		if err != nil {
			return moved, &diskFault{err}
		}
		i := r.item(r.cut)
		*i = sendItem{part: p, work: i.work}
		if !p.hole {
			last := len(r.extents) - 1
			i.extent = r.extents[last]
			f := i.extent
			f.Len = uint32((p.length + r.align - 1) &^ (r.align - 1))
			*r.config.Endpoint.Region.Side(f) = umem.Side{Target: r.target, Block: p.at, Token: r.cut}
			if r.one[0] = f; r.queue.Supply(r.one[:]) == 0 {
				return moved, nil
			}
			r.extents = r.extents[:last]
			r.reading++
		}
		r.cut++
		r.at += p.length
		moved = true
	}
	return moved, nil
}

// filled processes a piece that the disk has read.
func (r *round) filled(f umem.Frame) error {
	r.reading--
	region := r.config.Endpoint.Region
	i := r.item(region.Side(f).Token)
	err := f.Err()
	switch tail := i.at+i.length == r.request.size; {
	case errors.Is(err, unix.ENODATA) && tail: // what the alignment adds is not there
	case errors.Is(err, unix.ENODATA):
		return r.abort(fmt.Errorf("%s: %w: it ends before byte %d", r.config.Path, protocol.Changed, i.at+i.length))
	case err != nil:
		if changed := r.source.changed(); errors.Is(changed, protocol.Changed) { // a file that grew needs another alignment of its end
			return r.abort(changed)
		}
		return &diskFault{fmt.Errorf("read %d bytes at %d of %s: %w", i.length, i.at, r.config.Path, err)}
	}
	i.read = true
	r.count.read.Add(i.length)
	r.hashers.begin(i.work, region.At(i.extent.Addr, i.length))
	return nil
}

// post sends items whose hashes are known.
func (r *round) post() (moved bool, err error) {
	for r.posted < r.cut {
		i := r.item(r.posted)
		send := r.postPiece
		if i.hole {
			send = r.postHole
		}
		did := send(i)
		moved = moved || did
		if !i.posted {
			break
		}
		r.posted++
		r.count.at.Set(i.at + i.length)
		r.said = r.now
	}
	return moved, nil
}

// postHole hashes a hole and sends it.
func (r *round) postHole(i *sendItem) (did bool) {
	if i.folded < i.length {
		i.folded += r.digest.addZeros(i.length - i.folded)
		did = true
	}
	if i.folded < i.length || !r.link.room(1) {
		return did
	}
	r.link.send(&message{kind: kindHole, at: i.at, length: i.length})
	r.count.holes.Add(i.length)
	i.posted, i.done = true, true
	return true
}

// postPiece WRITEs a piece, in one message if neither the device nor the limit ask for several, and sends its header.
func (r *round) postPiece(i *sendItem) (did bool) {
	if !i.read || !i.work.done() || len(r.grants) == 0 {
		return false
	}
	g := &r.grants[0]
	for i.wrote < i.length {
		if !r.link.room(2) || r.limiter.wait(r.now) > 0 {
			return did
		}
		if i.wrote == 0 {
			r.one[0] = i.extent
			r.worker.PassTo(r.writing, r.one[:])
		}
		n := min(i.length-i.wrote, r.limiter.part(r.link.most))
		i.open++
		r.link.write(r.posted, i.extent.Addr+i.wrote, uint32(n), g.at+i.wrote, g.value)
		r.limiter.took(n, r.now)
		i.wrote += n
		r.count.sent.Add(n)
		did = true
	}
	if !r.link.room(1) {
		return did
	}
	r.digest.add(i.length, i.work.leaves)
	r.link.send(&message{kind: kindPiece, at: i.at, length: i.length, number: g.number, value: i.work.sum, holes: i.holes})
	r.grants = r.grants[:copy(r.grants, r.grants[1:])]
	i.posted = true
	r.settle(i)
	return true
}

// finish looks whether the source has changed, now and then and at the end, and says that everything was sent.
func (r *round) finish() (moved bool, err error) {
	all := r.at == r.request.size && r.posted == r.cut && !r.ended
	if all || !r.ended && r.now.Sub(r.looked) > lookEvery {
		r.looked = r.now
		if err := r.source.changed(); errors.Is(err, protocol.Changed) {
			return false, r.abort(err)
		} else if err != nil {
			return false, &diskFault{err}
		}
	}
	switch {
	case all && r.link.room(1):
		r.Sender.digest, r.ended = r.digest.sum(), true
		r.link.send(&message{kind: kindEnd, at: r.request.size, digest: r.Sender.digest})
	case r.now.Sub(r.said) > aliveEvery && r.link.room(1):
		r.link.send(&message{kind: kindAlive})
	default:
		return false, nil
	}
	r.said = r.now
	return true, nil
}

// abort tells the receiver that the source has changed, so that it throws the copy away.
func (r *round) abort(cause error) error {
	if r.link.room(1) {
		r.link.send(&message{kind: kindAbort, number: uint32(protocol.Changed)})
		for end := time.Now().Add(reasonTime); r.link.open > 0 && r.link.cause == nil && time.Now().Before(end); sleep(shortSleep) {
			if _, err := r.link.poll(); err != nil {
				break
			}
		}
	}
	return cause
}

// close closes the queue pair, and takes every extent back.
func (r *round) close() error {
	if r.link != nil {
		if err := r.link.close(); err != nil {
			return err
		}
	}
	for r.reading > 0 {
		if err := r.queue.Wait(10 * time.Millisecond); err != nil {
			return err
		}
		for r.queue.Recv(r.one[:]) == 1 {
			r.reading--
			r.item(r.Sender.config.Endpoint.Region.Side(r.one[0]).Token).read = false
		}
	}
	for n := r.posted; n < r.cut; n++ {
		for i := r.item(n); i.read && !i.work.done(); {
			sleep(shortSleep)
		}
	}
	if r.link != nil {
		r.writing.PassTo(r.worker, r.written())
	}
	r.extents = append(r.extents[:0], r.all...)
	r.count.kernel.Set(r.queue.Stats().Copied)
	r.control.Recall()
	return nil
}

// written returns the extents that the device had when the queue pair was closed.
func (r *round) written() (frames []umem.Frame) {
	for n := r.gone; n < r.cut; n++ {
		if i := r.item(n); !i.hole && i.wrote > 0 && !i.done {
			frames = append(frames, i.extent)
		}
	}
	return frames
}
