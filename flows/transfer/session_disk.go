package transfer

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/nvme"
	"github.com/unifiedd/unifiedd/umem"
)

// Tokens of operations without frames: that of the flush, and numbers of holes.
const flushToken = 1<<64 - 1

// write begins to write pieces and holes whose hashes are known.
func (s *session) write() (moved bool, err error) {
	for ; s.begun < s.folded; s.begun++ {
		i := s.item(s.begun)
		begin := s.writePiece
		if i.hole {
			begin = s.writeHole
		}
		did, err := begin(i, s.begun)
		if err != nil || !did {
			return moved, err
		}
		moved = true
	}
	return moved, nil
}

// writePiece begins to write a piece from where it has arrived.
func (s *session) writePiece(i *item, number uint64) (did bool, err error) {
	if s.dest.dir != nil && !s.dest.reserved && s.dest.place.keepFree > 0 {
		// What the disk has in flight may not have its blocks yet.
		if err := s.dest.checkRoom(uint64(s.flying+1) * s.receiver.piece); err != nil {
			return false, err
		}
	}
	if i.holes && s.dest.dir != nil {
		i.run = 0
		return s.writeRun(i, number)
	}
	return s.submit(i, number, 0, i.length), nil
}

// submit begins to write a part of a piece. What the alignment adds to the last one of a file is zeros.
func (s *session) submit(i *item, number, from, length uint64) bool {
	region := s.receiver.config.Endpoint.Region
	f := s.slots[i.slot].extent
	f.Addr += from
	if whole := (length + s.align - 1) &^ (s.align - 1); whole > length {
		clear(region.At(f.Addr+length, whole-length))
		length = whole
	}
	f.Len, f.Options = uint32(length), 0
	*region.Side(f) = umem.Side{Target: s.target, Block: i.at + from, Token: number}
	s.one[0] = f
	if s.queue.Send(s.one[:]) == 0 {
		return false
	}
	s.flying++
	return true
}

// writeRun writes the next part of a piece that is not all zeros: the file has holes elsewhere. The file is empty there.
func (s *session) writeRun(i *item, number uint64) (did bool, err error) {
	region := s.receiver.config.Endpoint.Region
	piece := region.At(s.slots[i.slot].extent.Addr, i.length)
	from := i.run
	for from < i.length && isZero(piece[from:min(from+blockSize, i.length)]) {
		from += blockSize
	}
	if from >= i.length {
		i.written = true
		return true, nil
	}
	to := from
	for to < i.length && !isZero(piece[to:min(to+blockSize, i.length)]) {
		to += blockSize
	}
	to = min(to, i.length)
	if !s.submit(i, number, from, to-from) {
		return false, nil
	}
	i.run = to
	return true, nil
}

var zeros [blockSize]byte

// isZero reports whether all bytes are 0, of which there is one block at most.
func isZero(b []byte) bool { return bytes.Equal(b, zeros[:len(b)]) }

// writeHole makes a range of a device zeros. In a file, it is a hole already.
func (s *session) writeHole(i *item, number uint64) (did bool, err error) {
	if s.dest.dir != nil {
		i.written = true
		return true, nil
	}
	length := (i.length + s.align - 1) &^ (s.align - 1)
	if err := s.queue.Zero(s.target, i.at, length, number); errors.Is(err, nvme.ErrBusy) {
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("%w: zero %d bytes at %d: %w", protocol.DiskError, length, i.at, err)
	}
	s.flying++
	return true, nil
}

// reap takes what the disk has done, and retires items. After an error there may be more to take.
func (s *session) reap() (moved bool, err error) {
	for s.queue.Reap(s.one[:]) == 1 {
		moved = true
		s.flying--
		if err := s.wrote(s.one[0]); err != nil {
			return moved, err
		}
	}
	for s.queue.Flushed(s.results[:]) == 1 {
		moved = true
		s.flying--
		switch r := s.results[0]; {
		case r.Token == flushToken && r.Err != nil:
			s.progress.lost = s.diskError("flush", r.Err) // the kernel tells it once
			return moved, s.progress.lost
		case r.Err != nil:
			return moved, s.diskError("zero a hole", r.Err)
		case r.Token == flushToken:
			s.durable()
		default:
			s.item(r.Token).written = true
		}
	}
	return s.retire() || moved, nil
}

// wrote processes a write that is done.
func (s *session) wrote(f umem.Frame) error {
	number := s.receiver.config.Endpoint.Region.Side(f).Token
	i := s.item(number)
	if err := f.Err(); err != nil {
		return s.diskError(fmt.Sprintf("write %d bytes at %d", f.Len, i.at), err)
	}
	s.receiver.count.written.Add(uint64(f.Len))
	if !i.holes || s.dest.dir == nil {
		i.written = true
		return nil
	}
	did, err := s.writeRun(i, number)
	if err == nil && !did {
		err = errors.New("the disk queue has no room for a write in place of another")
	}
	return err
}

// diskError returns an error of the disk with its reason.
func (s *session) diskError(what string, err error) error {
	err = noSpace(err, "%s of %q", what, s.dest.name)
	if !errors.Is(err, protocol.NoSpace) {
		err = fmt.Errorf("%w: %w", protocol.DiskError, err)
	}
	return err
}

// retire frees the memory of items that are written, in their order.
func (s *session) retire() (moved bool) {
	p := &s.progress
	for ; s.retired < s.begun; s.retired++ {
		i := s.item(s.retired)
		if !i.written {
			break
		}
		p.written, p.state = i.at+i.length, append(p.state[:0], i.state...)
		if s.dest.samples != nil {
			s.sample(i)
		}
		if !i.hole {
			s.freed++
		}
		if s.link.pair != nil {
			s.link.release()
		}
		moved = true
	}
	return moved
}

// sample takes samples of an item that a device has. Its memory is still its own.
func (s *session) sample(i *item) {
	if i.hole {
		s.dest.samples.addZeros(i.length)
	} else {
		s.dest.samples.add(i.length, s.slots[i.slot].work.leaves)
	}
}

// flush flushes the disk when enough was written since the last time, and at the end.
func (s *session) flush() (moved bool, err error) {
	p := &s.progress
	all := s.ended && p.written == s.asked.size
	if p.flushing || s.recorder.busy || p.written == p.flushed || !all && p.written-p.flushed < flushBytes && s.now.Sub(p.last) < flushEvery {
		return false, nil
	}
	if err := s.queue.Flush(s.target, flushToken); errors.Is(err, nvme.ErrBusy) {
		return false, nil
	} else if err != nil {
		return false, s.diskError("flush", err)
	}
	s.flying++
	p.flushing, p.flushed, p.behind, p.last = true, p.written, append(p.behind[:0], p.state...), s.now
	p.samples = s.dest.sampled()
	return true, nil
}

// durable records what a flush has made durable.
func (s *session) durable() {
	s.progress.flushing = false
	s.receiver.count.flushes.Add(1)
	durable, state, samples := s.progress.flushed, append([]byte(nil), s.progress.behind...), s.progress.samples
	s.recorder.do(func() error { return s.dest.note(durable, state, samples) })
}

// record takes what the recorder has done, tells the sender, and completes the copy.
func (s *session) record() (moved bool, err error) {
	p := &s.progress
	if done, err := s.recorder.done(); err != nil {
		return false, s.diskError("record", err)
	} else if done {
		moved = true
		s.receiver.count.records.Add(1)
		if p.final == committing {
			p.final = telling
		} else {
			p.noted = p.flushed
		}
	}
	switch {
	case p.final == telling && s.link.room(1):
		s.link.send(&message{kind: kindComplete, at: s.asked.size, digest: s.want})
		p.final = complete
		return true, nil
	case p.final == notFinal && s.ended && p.noted == s.asked.size && !s.recorder.busy:
		if s.digest.sum() != s.want {
			return moved, fmt.Errorf("%w: %w", protocol.BadPayload, errDigest)
		}
		p.final = committing
		digest, state := s.want, append([]byte(nil), p.state...)
		s.recorder.do(func() error { return s.dest.commit(digest, state) })
		return true, nil
	case p.told != p.noted && s.link.room(1):
		s.link.send(&message{kind: kindDurable, at: p.noted})
		p.told = p.noted
		return true, nil
	}
	return moved, nil
}

// settleTime is how long the end of a connection waits for the disk.
const settleTime = 10 * time.Second

// settle ends a connection: the queue pair is closed. What was written becomes durable, so that the next connection
// continues there; a copy of a source that has changed is thrown away. It returns the cause, or nil if the copy is
// complete, also when the sender has left before it knew.
func (s *session) settle(cause error) error {
	for n := s.folded; n < s.hashing; n++ { // their memory is being read
		for i := s.item(n); !i.hole && !s.slots[i.slot].work.done(); {
			time.Sleep(100 * time.Microsecond)
		}
	}
	if err := s.settleRecord(); err != nil {
		return errors.Join(cause, err)
	}
	abort := (*abortError)(nil)
	switch {
	case s.progress.final >= telling:
		return nil
	case errors.Is(cause, errDigest), errors.As(cause, &abort) && abort.reason == protocol.Changed:
		return errors.Join(cause, s.drain(), s.dest.discard())
	case errors.Is(cause, protocol.DiskError):
		return cause
	}
	return errors.Join(cause, s.keep())
}

// settleRecord waits for the recorder.
func (s *session) settleRecord() error {
	for s.recorder.busy {
		done, err := s.recorder.done()
		switch {
		case err != nil:
			return s.diskError("record", err)
		case done && s.progress.final == committing:
			s.progress.final = telling
		case done:
			s.progress.noted = s.progress.flushed
		default:
			time.Sleep(100 * time.Microsecond)
		}
	}
	return nil
}

// drain waits until the disk has done what was begun. Writes that fail are not retired, nor those behind them.
func (s *session) drain() error {
	for end := time.Now().Add(settleTime); s.flying > 0; {
		if time.Now().After(end) {
			return errors.New("the disk does not answer")
		}
		if err := s.queue.Wait(10 * time.Millisecond); err != nil {
			return err
		}
		_, _ = s.reap() // the connection has its cause
	}
	s.retire()
	return s.settleRecord()
}

// keep makes durable what was written, and records it.
func (s *session) keep() error {
	if err := s.drain(); err != nil {
		return err
	}
	p := &s.progress
	if p.lost != nil {
		return p.lost
	}
	if p.written == s.dest.record.last.durable {
		return nil
	}
	for err := unix.Fdatasync(s.dest.target.FD()); err != nil; err = unix.Fdatasync(s.dest.target.FD()) {
		if err != unix.EINTR {
			return fmt.Errorf("flush what has arrived: %w", err)
		}
	}
	return s.dest.note(p.written, p.state, s.dest.sampled())
}

// release gives everything back. Frames that a disk still has stay with its queue.
func (s *session) release() (err error) {
	if s.link != nil {
		err = s.link.close()
	}
	if s.recorder != nil {
		s.recorder.close()
	}
	if s.queue != nil {
		s.receiver.count.kernel.Add(s.queue.Stats().Copied)
		if qerr := s.queue.Close(); qerr != nil {
			return errors.Join(err, qerr)
		}
	}
	if err != nil { // the device may still reach the memory
		return err
	}
	if s.memory != nil {
		err = errors.Join(err, s.memory.Close())
	}
	if s.domain != nil {
		err = errors.Join(err, s.domain.Close())
	}
	for _, h := range []*umem.Holder{s.granted, s.control, s.worker} {
		if h != nil {
			h.Close()
		}
	}
	if s.book != nil {
		err = errors.Join(err, s.book.Close())
	}
	if s.dest != nil {
		err = errors.Join(err, s.dest.close())
	}
	return err
}

// recorder runs the steps of one session that wait for the disk, one at a time, on a goroutine of its own.
type recorder struct {
	steps   chan func() error
	results chan error
	busy    bool // of the session's thread
}

func newRecorder() *recorder {
	r := &recorder{steps: make(chan func() error, 1), results: make(chan error, 1)}
	go func() {
		defer close(r.results)
		for step := range r.steps {
			r.results <- step()
		}
	}()
	return r
}

// do begins a step. None may be under way.
func (r *recorder) do(step func() error) {
	r.busy = true
	r.steps <- step
}

// done reports whether a step has ended since the last call.
func (r *recorder) done() (bool, error) {
	if !r.busy {
		return false, nil
	}
	select {
	case err := <-r.results:
		r.busy = false
		return true, err
	default:
		return false, nil
	}
}

// close ends the goroutine, after its last step.
func (r *recorder) close() {
	close(r.steps)
	for range r.results {
	}
}
