package attached

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/attach/wire"
)

// side is what the writer and a reader of a channel have in common.
type side struct {
	client *Client
	open   wire.Open
	link   *link // nil: closed
	number uint32
	maps   [][]byte
	ring   *wire.Channel
	closed atomic.Pointer[RefusedError]
	said   wire.Opened
}

// openOn opens the port on a connection, and returns the descriptors that come after the ring.
func (s *side) openOn(l *link) (rest []*os.File, err error) {
	got, err := s.client.open(l, &s.open)
	if err != nil {
		return nil, err
	}
	o := got.Opened
	if len(got.files) < 2 || o.Entries == 0 || o.Align < wire.MinSlot || o.Align > wire.MaxSlot || o.Size != wire.ChannelLen(o.Entries, o.Align) {
		closeFiles(got.files)
		return nil, wire.ErrMessage
	}
	s.unmap()
	s.link, s.number, s.said = l, o.Port, *o
	prot := unix.PROT_READ
	if s.open.Role == wire.Write {
		prot |= unix.PROT_WRITE
	}
	b, err := s.mmap(got.files[0], int(o.Size), prot)
	_ = got.files[0].Close()
	if err != nil {
		closeFiles(got.files[1:])
		return nil, err
	}
	s.ring = wire.ViewChannel(b, o.Entries, o.Align)
	l.know(s.number, &s.closed)
	return got.files[1:], nil
}

// mmap maps a file until unmap.
func (s *side) mmap(f *os.File, size, prot int) ([]byte, error) {
	b, err := unix.Mmap(int(f.Fd()), 0, size, prot, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return nil, fmt.Errorf("map a channel: %w", err)
	}
	s.maps = append(s.maps, b)
	return b, nil
}

func (s *side) unmap() {
	for _, b := range s.maps {
		_ = unix.Munmap(b) // it is mapped
	}
	s.maps, s.ring = nil, nil
	if s.link != nil {
		s.link.forget(s.number)
		s.link = nil
	}
}

// err says why the port ends, or nil.
func (s *side) err() error {
	if c := s.closed.Load(); c != nil {
		return c
	}
	if s.link == nil || !s.link.alive() {
		return ErrGone
	}
	return nil
}

// close ends the port.
func (s *side) close() error {
	if s.link == nil {
		return nil
	}
	var err error
	if s.err() == nil {
		err = s.link.end(s.number)
	}
	s.unmap()
	if errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, net.ErrClosed) {
		return nil // it has ended already
	}
	return err
}

// newSide opens a port of a channel on the present connection.
func (k *Client) newSide(channel string, role wire.Role) (*side, []*os.File, error) {
	k.mu.Lock()
	l := k.link
	k.mu.Unlock()
	s := &side{client: k, open: wire.Open{Flow: channel, Role: role}}
	err := ErrGone
	var rest []*os.File
	if l != nil && l.alive() {
		rest, err = s.openOn(l)
	}
	if err != nil {
		s.unmap()
		return nil, nil, fmt.Errorf("open channel %s: %w", channel, err)
	}
	return s, rest, nil
}

// ChannelWriter writes the messages of a channel. It belongs to one goroutine at a time.
type ChannelWriter struct {
	s         *side
	present   wire.Present
	readers   []channelReader
	numbering uint64 // of the sequences that it has written,
	last      uint64 // and the last of them when it was opened again
}

// channelReader is a reader as the writer sees it.
type channelReader struct {
	page *wire.ReaderPage
	wake *os.File
	fd   int
}

// WriteChannel opens a channel that this program writes.
func (k *Client) WriteChannel(channel string) (*ChannelWriter, error) {
	s, rest, err := k.newSide(channel, wire.Write)
	if err != nil {
		return nil, err
	}
	w := &ChannelWriter{s: s}
	if err := w.take(rest); err != nil {
		return nil, errors.Join(fmt.Errorf("open channel %s: %w", channel, err), w.Close())
	}
	return w, nil
}

// take maps the pages of the readers, and says that everything is mapped. The sequences go on after what this writer has
// written, also if the daemon has begun anew meanwhile.
func (w *ChannelWriter) take(files []*os.File) error {
	w.dropReaders()
	defer func() { closeFiles(files) }()
	if len(files)%2 != 1 || len(files) > 1+2*wire.MaxReaders {
		return wire.ErrMessage
	}
	b, err := w.s.mmap(files[0], wire.PageLen, unix.PROT_READ)
	if err != nil {
		return err
	}
	w.present = wire.NewPresent(b)
	for i := 1; i < len(files); i += 2 {
		page, err := w.s.mmap(files[i], wire.PageLen, unix.PROT_READ)
		if err != nil {
			return err
		}
		w.readers = append(w.readers, channelReader{wire.NewReaderPage(page), files[i+1], int(files[i+1].Fd())})
		files[i+1] = nil // it stays open
	}
	if ring := w.s.ring; w.last > ring.Last() {
		ring.SetNumbering(w.numbering)
		ring.SetLast(w.last)
	}
	w.numbering = w.s.ring.Numbering()
	return w.s.link.write(&wire.Mapped{Port: w.s.number})
}

func (w *ChannelWriter) dropReaders() {
	for _, r := range w.readers {
		_ = r.wake.Close()
	}
	w.readers = nil
}

// Longest returns the length of the longest message.
func (w *ChannelWriter) Longest() int { return w.s.ring.Longest() }

// Next returns the sequence of the next message.
func (w *ChannelWriter) Next() uint64 { return w.s.ring.Last() + 1 }

// Readers returns how many readers are there now.
func (w *ChannelWriter) Readers() (n int) {
	for i := range w.readers {
		if there, _ := w.present.Has(i); there {
			n++
		}
	}
	return n
}

// Write writes a message, which all readers find at once, and returns its sequence. The error is ErrFull if a reader for
// which this program waits has not read what lies there: try again, or call WriteWait. It never blocks.
func (w *ChannelWriter) Write(message []byte) (uint64, error) {
	ring := w.s.ring
	if len(message) > ring.Longest() {
		return 0, fmt.Errorf("write %d bytes: a message of the channel has at most %d", len(message), ring.Longest())
	}
	n := ring.Last() + 1
	for i := range w.readers {
		if _, blocks := w.present.Has(i); blocks && w.readers[i].page.Cursor()+ring.Slots() <= n {
			return 0, ErrFull
		}
	}
	ring.Put(message)
	for i := range w.readers {
		if r := &w.readers[i]; r.page.Asleep() {
			_ = unix.Send(r.fd, wakeByte[:], unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL) // EAGAIN: it is readable already
		}
	}
	return n, nil
}

// WriteWait is Write that waits for readers. If the daemon is gone it returns that: nobody tells which readers have
// ended.
func (w *ChannelWriter) WriteWait(ctx context.Context, message []byte) (uint64, error) {
	pause := leastStall
	for turn := 0; ; turn++ {
		n, err := w.Write(message)
		if !errors.Is(err, ErrFull) {
			return n, err
		}
		if turn == 0 {
			w.s.ring.CountStall()
		}
		if turn < spinTurns {
			continue
		}
		if err := w.s.err(); err != nil {
			return 0, err // nobody says which readers have ended
		}
		select {
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case <-time.After(pause):
		}
		pause = min(2*pause, mostStall)
	}
}

// spinTurns is how often a writer looks again before it sleeps, leastStall and mostStall how long it sleeps then.
const (
	spinTurns  = 1000
	leastStall = 20 * time.Microsecond
	mostStall  = time.Millisecond
)

// Err says why nobody reads any more: ErrGone, or that the daemon has closed the port. Resume opens it again.
func (w *ChannelWriter) Err() error { return w.s.err() }

// Resume opens the channel again after Err. It waits until that succeeds or ctx ends. Readers find the first message
// after it under the next sequence.
func (w *ChannelWriter) Resume(ctx context.Context) error {
	if w.s.ring != nil {
		w.last = max(w.last, w.s.ring.Last())
	}
	return w.s.client.reopen(ctx, func(l *link) error {
		rest, err := w.s.openOn(l)
		if err == nil {
			err = w.take(rest)
		}
		return err
	})
}

// Close ends the port. Readers still read what is in the channel.
func (w *ChannelWriter) Close() error {
	w.dropReaders()
	return w.s.close()
}

// ChannelReader reads the messages of a channel. It belongs to one goroutine at a time.
type ChannelReader struct {
	s    *side
	page *wire.ReaderPage
	wake *os.File
	fd   int
	next uint64
	lost uint64

	numbering uint64 // of the sequences that it reads
}

// ReadChannel opens a channel that this program reads, from the next message on.
func (k *Client) ReadChannel(channel string) (*ChannelReader, error) {
	s, rest, err := k.newSide(channel, wire.Follow)
	if err != nil {
		return nil, err
	}
	r := &ChannelReader{s: s}
	if err := r.take(rest); err != nil {
		return nil, errors.Join(fmt.Errorf("open channel %s: %w", channel, err), r.Close())
	}
	r.next, r.numbering = s.said.Next, s.ring.Numbering()
	return r, nil
}

// take maps the reader's page.
func (r *ChannelReader) take(files []*os.File) error {
	r.dropWake()
	if len(files) != 2 {
		closeFiles(files)
		return wire.ErrMessage
	}
	b, err := r.s.mmap(files[0], wire.PageLen, unix.PROT_READ|unix.PROT_WRITE)
	_ = files[0].Close()
	r.wake, r.fd = files[1], int(files[1].Fd())
	if err == nil {
		r.page = wire.NewReaderPage(b)
	}
	return err
}

func (r *ChannelReader) dropWake() {
	if r.wake != nil {
		_ = r.wake.Close()
		r.wake = nil
	}
}

// Longest returns the length of the longest message.
func (r *ChannelReader) Longest() int { return r.s.ring.Longest() }

// Lost returns how many messages this reader has lost: the writer wrote over them before they were read.
func (r *ChannelReader) Lost() uint64 { return r.lost }

// Read copies the next message into dst, which must have room for Longest bytes. ok is false if there is none now. The
// sequence goes up by one with each message, and by more after lost ones. It never blocks. The error says, once
// everything that was there is read, why nothing more comes: Wait opens the channel again.
func (r *ChannelReader) Read(dst []byte) (n int, sequence uint64, ok bool, err error) {
	ring := r.s.ring
	if ring == nil {
		return 0, 0, false, ErrGone
	}
	for {
		n, found := ring.Get(r.next, dst)
		if ring.Numbering() != r.numbering {
			return 0, 0, false, r.renumbered()
		}
		switch found {
		case wire.Read:
			sequence = r.next
			r.next++
			r.page.SetCursor(r.next)
			return n, sequence, true, nil
		case wire.NotYet:
			return 0, 0, false, r.s.err()
		case wire.Damaged:
			return 0, 0, false, wire.BadDescriptor
		}
		oldest := max(ring.Oldest(), r.next+1)
		r.lost += oldest - r.next
		r.page.AddLost(oldest - r.next)
		r.next = oldest
		r.page.SetCursor(r.next)
	}
}

// renumbered says that the sequences have begun again: what is in the ring is not what this reader expects.
func (r *ChannelReader) renumbered() error {
	if err := r.s.err(); err != nil {
		return err
	}
	return errRenumbered
}

// errRenumbered says that the sequences of a channel have begun again. The daemon closes the port, too.
var errRenumbered = &RefusedError{wire.Closing.String(), "the sequences of the channel begin again"}

// Wait waits until Read may have a message, at most for a time. If the writer or the daemon has left, it opens the
// channel again. The error is that of ctx, or says that the daemon does not want this program any more, or that this
// reader was too slow, for which the daemon has closed its port: Resume goes on with the next message.
func (r *ChannelReader) Wait(ctx context.Context, most time.Duration) error {
	if c := r.s.closed.Load(); c != nil && c.Reason == wire.TooSlow.String() {
		return c
	}
	if r.s.ring == nil || r.s.err() != nil {
		return r.Resume(ctx)
	}
	r.page.SetAsleep(true)
	defer r.page.SetAsleep(false)
	for until := time.Now().Add(most); r.s.ring.Last() < r.next && r.s.err() == nil; {
		left := time.Until(until)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case left <= 0:
			return nil
		}
		came, err := r.s.link.await(ctx, r.fd, min(left, longWait), r.s.err)
		if err != nil {
			return err
		}
		if came {
			var b [64]byte
			_, _ = unix.Read(r.fd, b[:]) // it does not block
			return nil
		}
	}
	return nil
}

// Resume opens the channel again. Messages that were written meanwhile are lost, and counted.
func (r *ChannelReader) Resume(ctx context.Context) error {
	return r.s.client.reopen(ctx, func(l *link) error {
		rest, err := r.s.openOn(l)
		if err != nil {
			return err
		}
		if err := r.take(rest); err != nil {
			return err
		}
		next, from := r.s.said.Next, r.next
		if n := r.s.ring.Numbering(); n != r.numbering {
			r.numbering, from = n, 1 // all that was written before is lost, too
		}
		if r.next = from; next > from {
			r.lost += next - from
			r.page.AddLost(next - from)
			r.next = next
		}
		return nil
	})
}

// Close ends the port.
func (r *ChannelReader) Close() error {
	r.dropWake()
	return r.s.close()
}
