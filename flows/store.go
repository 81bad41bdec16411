package flows

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/internal/index"
	"github.com/unifiedd/unifiedd/internal/newfile"
	"github.com/unifiedd/unifiedd/internal/pcapng"
	"github.com/unifiedd/unifiedd/nvme"
)

// store prepares a flow's segments ahead of time, names them when they are
// taken, finishes them when they are full and keeps the newest. What blocks
// happens on its own goroutines; the worker calls take and give only.
type store struct {
	to     config.To
	names  names
	device *device // nil for files
	head   func(pcapng.Segment) ([]byte, error)
	log    *slog.Logger
	owner  owner
	floor  floor
	// meanwhile is what happens as long as nothing can be written, for people.
	meanwhile string

	mostAlign uint32 // that the layout can pad to; 0: any

	align uint32 // of every segment
	size  uint64 // of every segment

	headLen uint64 // of every segment

	ready   chan *segment
	begun   chan time.Time // for each one taken, since when files are of its time
	back    chan *segment
	stop    chan struct{}
	trouble atomic.Pointer[error] // what keeps the next segment from being ready
	taken   atomic.Uint64         // segments handed to the worker
	failed  []error               // of finishing; the finisher's until closed
	settled atomic.Int64          // number of the last segment that is finished
	pruning sync.Mutex
	removed removals
	earlier uint64 // time of the newest packet of earlier runs; 0: not known
	running sync.WaitGroup
	view    view     // what status tells of the segments
	indexer *indexer // nil: the segments have no indexes

	unreadable uint64                // files and slots of segments whose heads could not be read when the run began
	manifest   *manifest             // of a log; nil: a capture
	broken     atomic.Pointer[error] // why nothing more is durable

	completed func(path string) // told of segments that are complete; nil: nobody is
}

// What happens as long as nothing can be written.
const (
	packetsWait = "packets wait, and are lost in the kernel's rings once those are full"
	clientsWait = "clients wait"
)

// maxRetired is how many segments may wait to be completed before the worker waits, too.
const maxRetired = 256

// retry is how long the store waits after it could not prepare a segment.
const retry = time.Second

// Config describes the segments of a flow.
type Config struct {
	To   config.To
	Head func(pcapng.Segment) ([]byte, error) // makes the bytes that a segment begins with
	Log  *slog.Logger

	Manifest  *manifest         // of a log; nil: a capture
	MostAlign uint32            // the largest alignment that the layout can pad to; 0: any
	MakeIndex index.Maker       // makes indexes where To asks for them; nil: the manager does
	Complete  func(path string) // called for each segment that is complete; nil: nobody asks
}

// openStore recovers what an earlier run left, prepares the first segment and
// starts the goroutines.
func openStore(c Config) (*store, error) {
	to := c.To
	s := &store{
		to: to, head: c.Head, log: c.Log, manifest: c.Manifest, mostAlign: c.MostAlign, completed: c.Complete, meanwhile: packetsWait,
		ready: make(chan *segment), begun: make(chan time.Time, 1), back: make(chan *segment, maxRetired), stop: make(chan struct{}),
	}
	if to.Acknowledge != "" { // a log
		s.meanwhile = clientsWait
	}
	if err := s.settle(); err != nil {
		return nil, errors.Join(err, s.closeDir())
	}
	number, err := s.recover()
	if err != nil {
		return nil, errors.Join(s.advise(err), s.closeDir())
	}
	if number, err = s.openManifest(number); err != nil {
		return nil, errors.Join(s.advise(err), s.closeDevice(), s.closeDir())
	}
	s.settled.Store(int64(number - 1))
	if to.Index && s.device == nil && !to.Exact {
		s.indexer = newIndexer(c.Log)
	}
	s.reserveSlot()
	first, err := s.prepare(number)
	if err != nil {
		return nil, errors.Join(s.advise(err), s.closeManifest(), s.closeDevice(), s.closeDir())
	}
	s.align, s.size, s.headLen = first.align, first.size, first.next
	if s.floor.keep != 0 && !to.Exact {
		s.running.Add(1)
		go s.guard()
	}
	if s.manifest != nil {
		s.running.Add(1)
		go s.keepManifest()
	}
	s.running.Add(2)
	go s.supply(first)
	go s.finish()
	if s.indexer != nil {
		s.indexer.begin(c.MakeIndex, s.names)
	}
	return s, nil
}

// settle finds out what the files are to be, and what is to stay free beside them.
func (s *store) settle() (err error) {
	if s.to.Device != "" {
		return nil
	}
	if s.owner, err = newOwner(s.to); err != nil {
		return err
	}
	if s.to.Opened != "" {
		return s.floor.open(s.to.KeepFree, s.to.Opened)
	}
	if s.names.dir, err = newfile.OpenDir(filepath.Dir(s.to.File)); err != nil {
		return fmt.Errorf("%w (create the directory first)", err)
	}
	return s.floor.open(s.to.KeepFree, filepath.Dir(s.to.File))
}

// take gives a prepared segment, or nil while there is none. Its name is of a time.
func (s *store) take(at time.Time) *segment {
	select {
	case next := <-s.ready:
		s.begun <- at // there is room: for each segment it is emptied once
		s.taken.Add(1)
		return next
	default:
		return nil
	}
}

// give takes back a segment that is durable to its end.
func (s *store) give(full *segment) { s.back <- full }

// supply keeps one segment ready.
func (s *store) supply(next *segment) {
	defer s.running.Done()
	for next != nil {
		select {
		case s.ready <- next:
			s.adopt(next, <-s.begun)
			next = s.prepareNext(next.number + 1)
		case <-s.stop:
			s.discard(next)
			return
		}
	}
}

// before is what segments subtract from the flow's packet numbers: those of a file
// begin at zero, and those of a ring go on.
func (s *store) before(packets uint64) uint64 {
	if s.device != nil {
		return 0
	}
	return packets
}

// last reports whether no segment comes behind one.
func (s *store) last(number int) bool {
	if s.names.turns != nil {
		return s.names.turns.ends(number)
	}
	return s.to.Exact
}

// prepareNext prepares a segment, again and again until it can or the store
// closes.
func (s *store) prepareNext(number int) *segment {
	if s.last(number-1) || !s.reserveSlot() {
		return nil
	}
	for {
		next, err := s.prepare(number)
		s.setTrouble(err)
		if err == nil {
			return next
		}
		select {
		case <-time.After(retry):
		case <-s.stop:
			return nil
		}
	}
}

// setTrouble shows, and logs once, what keeps the store from going on.
func (s *store) setTrouble(err error) {
	before := s.trouble.Load()
	if err == nil {
		if before != nil {
			s.log.Info("segments can be prepared again")
		}
		s.trouble.Store(nil)
		return
	}
	if before == nil || (*before).Error() != err.Error() {
		s.log.Warn("no segment is ready; "+s.meanwhile, "why", err)
	}
	s.trouble.Store(&err)
}

// prepare makes a segment: its space, its head, its id.
func (s *store) prepare(number int) (*segment, error) {
	if s.device != nil {
		next := s.planSlot(number)
		if !s.forget(number - int(s.device.Slots) + 1) {
			return nil, fmt.Errorf("prepare segment %d of %s: the manifest still names the one in its place", number, next.path)
		}
		if err := s.begin(next); err != nil {
			return nil, fmt.Errorf("prepare segment %d of %s: %w", number, next.path, err)
		}
		s.device.begun.Store(uint64(number))
		return next, nil
	}
	next, c := s.plan(number)
	c.Dir = s.names.dir
	defer s.floor.lock()()
	if err := s.makeRoom(next.size); err != nil {
		return nil, fmt.Errorf("prepare segment: %w", err)
	}
	target, err := nvme.OpenTarget(c)
	if errors.Is(err, os.ErrExist) {
		err = fmt.Errorf("%w (it is none of ours: remove it)", err)
	}
	if err != nil {
		return nil, fmt.Errorf("prepare segment: %w", err)
	}
	next.target = target
	if err := hold(target.FD()); err != nil {
		return nil, errors.Join(fmt.Errorf("prepare segment %s: %w", next.path, err), target.Close())
	}
	err = s.owner.give(target.FD())
	if err == nil {
		err = s.begin(next)
	}
	if err == nil && s.to.Exact && s.names.turns == nil && s.to.Opened == "" {
		if err = s.names.rename(next.path, s.to.File); err == nil {
			next.path = s.to.File
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("prepare segment %s: %w", next.path, err), target.Close(), s.removePrepared(next))
	}
	return next, nil
}

// plan says where a segment goes and how its space is made.
func (s *store) plan(number int) (*segment, nvme.TargetConfig) {
	next := &segment{number: number}
	if t := s.names.turns; t != nil {
		next.path, next.size, next.enough = t.prepared(number), t.room(), uint64(t.Size)
		return next, nvme.TargetConfig{Path: next.path, Create: true, Exclusive: true, Buffered: true, Size: next.size, Prepare: preparation(s.to.Prepare)}
	}
	if s.to.Opened != "" {
		next.path = s.to.File
		return next, nvme.TargetConfig{Path: s.to.Opened, Buffered: true}
	}
	if s.to.Exact {
		next.path = s.prepared()
		return next, nvme.TargetConfig{Path: next.path, Create: true, Exclusive: true, Buffered: true}
	}
	next.path, next.size = s.names.Prepared(number), uint64(s.to.Segment.Size)
	return next, nvme.TargetConfig{Path: next.path, Create: true, Exclusive: true, Size: next.size, Prepare: preparation(s.to.Prepare)}
}

// enough is how many bytes a batch has that more than one packet is in. Of a file that is to have a size they are a sixteenth, so that
// what is left at its end is small.
func (s *store) enough(limit uint64) uint64 {
	size := uint64(s.to.Rotate.Size)
	if size == 0 {
		return limit
	}
	return min(limit, max(size/16, leastBatch), size-min(size, s.headLen+uint64(s.align)))
}

// leastBatch is how long batches are in small files.
const leastBatch = 16 << 10

// leastSegment is the least size of a segment: a quarter of it holds any packet.
const leastSegment = 1 << 20

// Align is the alignment of offsets in every segment, in bytes.
func (s *store) Align() uint32 { return s.align }

// Size is the size of every segment in bytes.
func (s *store) Size() uint64 { return s.size }

// Numbers returns the number of the run's first packet, where packets have numbers: in a ring.
func (s *store) Numbers() (first uint64, ok bool) {
	if s.device == nil {
		return 0, false
	}
	return s.device.base, true
}

// Rotates reports whether files have names as tcpdump's -C, -G and -W give them.
func (s *store) Rotates() bool { return s.names.turns != nil }

// WaitForSpace counts the time for which the free-space reserve keeps the worker from writing. The worker calls it when it can write nothing.
func (s *store) WaitForSpace(now time.Time) { s.floor.wait(now) }

// EndWait ends such a wait.
func (s *store) EndWait() { s.floor.goOn() }

// Consequence says what happens as long as nothing can be written.
func (s *store) Consequence() string { return s.meanwhile }

// Blocked is what keeps the next segment from being ready; nil: nothing does.
func (s *store) Blocked() error { return loaded(&s.trouble) }

// Failure is why nothing more is durable; nil: all is well.
func (s *store) Failure() error { return loaded(&s.broken) }

func loaded(p *atomic.Pointer[error]) error {
	if err := p.Load(); err != nil {
		return *err
	}
	return nil
}

func preparation(p config.Prepare) nvme.Preparation {
	switch p {
	case config.PrepareZero:
		return nvme.PrepareZero
	case config.PrepareAllocate:
		return nvme.PrepareAllocate
	}
	return nvme.PrepareNone
}

// begin writes the segment's head.
func (s *store) begin(next *segment) (err error) {
	if s.device == nil {
		if next.id, err = newSegmentID(); err != nil {
			return err
		}
	}
	next.align = max(pcapng.MinAlign, next.target.Alignment().Offset)
	if s.mostAlign != 0 && next.align > s.mostAlign {
		return fmt.Errorf("layout slot pads packets to %d bytes, and this disk takes multiples of %d only: use layout: packed", s.mostAlign, next.align)
	}
	head, err := s.head(pcapng.Segment{ID: next.id, Align: next.align, FirstPacket: next.first})
	if err != nil {
		return err
	}
	next.next = uint64(len(head))
	if next.size == 0 {
		next.size = endless
		if s.floor.keep == 0 {
			next.allowed.Store(endless)
		}
	} else if !next.takes(uint64(next.align)) {
		return fmt.Errorf("%d bytes are too few for the head of %d bytes: use larger segments", next.size, len(head))
	}
	if s.device != nil {
		head = append(head, make([]byte, next.align)...) // an earlier end there would be this segment's
	}
	return next.writeHead(head)
}

// adopt gives a segment that was taken its final name.
func (s *store) adopt(next *segment, at time.Time) {
	if final, err := s.christen(next, at); err != nil {
		s.breakOff(err)
	} else {
		next.final.Store(&final)
	}
	if next.grows() {
		s.running.Add(1)
		go s.grow(next)
	}
	s.prune()
}

// christen names a segment that was taken, durably, and returns its path. Where it cannot, nothing in the segment is durable.
func (s *store) christen(next *segment, at time.Time) (final string, err error) {
	if s.device != nil || s.to.Opened != "" {
		return next.path, s.nameInManifest(next)
	}
	final, err = s.names.christen(next, at, s.to.Exact)
	if err != nil {
		s.setTrouble(fmt.Errorf("name segment: %w", err))
		final = next.path // recovery finds it there
	}
	err = s.names.dir.Sync()
	if s.manifest == nil && errors.Is(err, unix.EINVAL) { // this file system has no such call: fsync(2)
		s.log.Warn("the name of a segment may not outlast a loss of power", "path", final, "why", err)
		err = nil
	}
	if err != nil {
		return final, fmt.Errorf("flush the name of segment %s: %w; what was written since may be lost", final, err)
	}
	return final, s.nameInManifest(next)
}

// discard removes a segment nobody took. One on a ring is ended with nothing in it,
// so that the next start may begin it again.
func (s *store) discard(next *segment) {
	if s.device != nil {
		if err := s.completeSlot(next); err != nil {
			s.log.Warn("unused segment stays behind", "why", err)
		}
		return
	}
	if err := errors.Join(next.target.Close(), s.removePrepared(next)); err != nil {
		s.log.Warn("unused segment stays behind", "why", err)
	}
}

func (s *store) removePrepared(next *segment) error {
	if s.to.Opened != "" {
		return nil // for who made it
	}
	if err := s.names.remove(next.path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// Close finishes the segments given back, removes the unused one and returns
// what went wrong in finishing. The worker gives nothing back any more.
func (s *store) Close() error {
	close(s.stop)
	close(s.back)
	s.running.Wait()
	if s.indexer != nil {
		s.indexer.close()
	}
	s.view.end()
	return errors.Join(append(s.failed, s.closeManifest(), s.closeDevice(), s.closeDir())...)
}

// closeDir closes the directory of files.
func (s *store) closeDir() error {
	if s.names.dir == nil {
		return nil
	}
	return s.names.dir.Close()
}

func (s *store) closeDevice() error {
	if s.device == nil {
		return nil
	}
	return s.device.Close()
}
