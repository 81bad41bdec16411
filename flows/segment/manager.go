package segment

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
type Manager struct {
	to    config.To
	names names
	ring  *ringDevice // nil for files
	head  func(pcapng.Segment) ([]byte, error)
	log   *slog.Logger
	owner owner
	space freeSpace
	// meanwhile is what happens as long as nothing can be written, for people.
	consequence string

	maxAlign uint32 // that the layout can pad to; 0: any

	align uint32 // of every segment
	size  uint64 // of every segment

	headLen uint64 // of every segment

	ready        chan *Segment
	activated    chan time.Time // for each one taken, since when files are of its time
	retired      chan *Segment
	stop         chan struct{}
	blocked      atomic.Pointer[error] // what keeps the next segment from being ready
	acquired     atomic.Uint64         // segments handed to the worker
	sealErrors   []error               // of finishing; the finisher's until closed
	sealed       atomic.Int64          // number of the last segment that is finished
	pruneLock    sync.Mutex
	removed      removals
	newestBefore uint64 // time of the newest packet of earlier runs; 0: not known
	running      sync.WaitGroup
	usageCache   usageCache // what status tells of the segments
	indexer      *indexer   // nil: the segments have no indexes

	unreadable uint64                // files and slots of segments whose heads could not be read when the run began
	manifest   *Manifest             // of a log; nil: a capture
	failure    atomic.Pointer[error] // why nothing more is durable

	onComplete func(path string) // told of segments that are complete; nil: nobody is
}

// What happens as long as nothing can be written.
const (
	PacketsWait = "packets wait, and are lost in the kernel's rings once those are full"
	ClientsWait = "clients wait"
)

// maxRetired is how many segments may wait to be completed before the worker waits, too.
const maxRetired = 256

// retry is how long the store waits after it could not prepare a segment.
const RetryInterval = time.Second

// Config describes the segments of a flow.
type Config struct {
	To   config.To
	Head func(pcapng.Segment) ([]byte, error) // makes the bytes that a segment begins with
	Log  *slog.Logger

	Manifest  *Manifest         // of a log; nil: a capture
	MostAlign uint32            // the largest alignment that the layout can pad to; 0: any
	MakeIndex index.Maker       // makes indexes where To asks for them; nil: the manager does
	Complete  func(path string) // called for each segment that is complete; nil: nobody asks
}

// openStore recovers what an earlier run left, prepares the first segment and
// starts the goroutines.
func Open(c Config) (*Manager, error) {
	to := c.To
	s := &Manager{
		to: to, head: c.Head, log: c.Log, manifest: c.Manifest, maxAlign: c.MostAlign, onComplete: c.Complete, consequence: PacketsWait,
		ready: make(chan *Segment), activated: make(chan time.Time, 1), retired: make(chan *Segment, maxRetired), stop: make(chan struct{}),
	}
	if to.Acknowledge != "" { // a log
		s.consequence = ClientsWait
	}
	if err := s.openDirectory(); err != nil {
		return nil, errors.Join(err, s.closeDir())
	}
	number, err := s.recover()
	if err != nil {
		return nil, errors.Join(s.advise(err), s.closeDir())
	}
	if number, err = s.openManifest(number); err != nil {
		return nil, errors.Join(s.advise(err), s.closeDevice(), s.closeDir())
	}
	s.sealed.Store(int64(number - 1))
	if to.Index && s.ring == nil && !to.Exact {
		s.indexer = newIndexer(c.Log)
	}
	s.reserveSlot()
	first, err := s.prepare(number)
	if err != nil {
		return nil, errors.Join(s.advise(err), s.closeManifest(), s.closeDevice(), s.closeDir())
	}
	s.align, s.size, s.headLen = first.align, first.size, first.Next
	if s.space.keep != 0 && !to.Exact {
		s.running.Add(1)
		go s.monitorSpace()
	}
	if s.manifest != nil {
		s.running.Add(1)
		go s.keepManifest()
	}
	s.running.Add(2)
	go s.prepareSegments(first)
	go s.sealSegments()
	if s.indexer != nil {
		s.indexer.begin(c.MakeIndex, s.names)
	}
	return s, nil
}

// settle finds out what the files are to be, and what is to stay free beside them.
func (s *Manager) openDirectory() (err error) {
	if s.to.Device != "" {
		return nil
	}
	if s.owner, err = newOwner(s.to); err != nil {
		return err
	}
	if s.to.Opened != "" {
		return s.space.open(s.to.KeepFree, s.to.Opened)
	}
	if s.names.dir, err = newfile.OpenDir(filepath.Dir(s.to.File)); err != nil {
		return fmt.Errorf("%w (create the directory first)", err)
	}
	return s.space.open(s.to.KeepFree, filepath.Dir(s.to.File))
}

// take gives a prepared segment, or nil while there is none. Its name is of a time.
func (s *Manager) Acquire(at time.Time) *Segment {
	select {
	case next := <-s.ready:
		s.activated <- at // there is room: for each segment it is emptied once
		s.acquired.Add(1)
		return next
	default:
		return nil
	}
}

// give takes back a segment that is durable to its end.
func (s *Manager) Retire(full *Segment) { s.retired <- full }

// supply keeps one segment ready.
func (s *Manager) prepareSegments(next *Segment) {
	defer s.running.Done()
	for next != nil {
		select {
		case s.ready <- next:
			s.activate(next, <-s.activated)
			next = s.prepareNext(next.Number + 1)
		case <-s.stop:
			s.discard(next)
			return
		}
	}
}

// before is what segments subtract from the flow's packet numbers: those of a file
// begin at zero, and those of a ring go on.
func (s *Manager) PacketsBefore(packets uint64) uint64 {
	if s.ring != nil {
		return 0
	}
	return packets
}

// last reports whether no segment comes behind one.
func (s *Manager) IsLast(number int) bool {
	if s.names.rotation != nil {
		return s.names.rotation.isLast(number)
	}
	return s.to.Exact
}

// prepareNext prepares a segment, again and again until it can or the store
// closes.
func (s *Manager) prepareNext(number int) *Segment {
	if s.IsLast(number-1) || !s.reserveSlot() {
		return nil
	}
	for {
		next, err := s.prepare(number)
		s.setBlocked(err)
		if err == nil {
			return next
		}
		select {
		case <-time.After(RetryInterval):
		case <-s.stop:
			return nil
		}
	}
}

// setTrouble shows, and logs once, what keeps the store from going on.
func (s *Manager) setBlocked(err error) {
	before := s.blocked.Load()
	if err == nil {
		if before != nil {
			s.log.Info("segments can be prepared again")
		}
		s.blocked.Store(nil)
		return
	}
	if before == nil || (*before).Error() != err.Error() {
		s.log.Warn("no segment is ready; "+s.consequence, "why", err)
	}
	s.blocked.Store(&err)
}

// prepare makes a segment: its space, its head, its id.
func (s *Manager) prepare(number int) (*Segment, error) {
	if s.ring != nil {
		next := s.planSlot(number)
		if !s.trimManifest(number - int(s.ring.Slots) + 1) {
			return nil, fmt.Errorf("prepare segment %d of %s: the manifest still names the one in its place", number, next.preparedPath)
		}
		if err := s.writeHead(next); err != nil {
			return nil, fmt.Errorf("prepare segment %d of %s: %w", number, next.preparedPath, err)
		}
		s.ring.prepared.Store(uint64(number))
		return next, nil
	}
	next, c := s.plan(number)
	c.Dir = s.names.dir
	defer s.space.lock()()
	if err := s.reclaim(next.size); err != nil {
		return nil, fmt.Errorf("prepare segment: %w", err)
	}
	target, err := nvme.OpenTarget(c)
	if errors.Is(err, os.ErrExist) {
		err = fmt.Errorf("%w (it is none of ours: remove it)", err)
	}
	if err != nil {
		return nil, fmt.Errorf("prepare segment: %w", err)
	}
	next.Target = target
	if err := lockFile(target.FD()); err != nil {
		return nil, errors.Join(fmt.Errorf("prepare segment %s: %w", next.preparedPath, err), target.Close())
	}
	err = s.owner.apply(target.FD())
	if err == nil {
		err = s.writeHead(next)
	}
	if err == nil && s.to.Exact && s.names.rotation == nil && s.to.Opened == "" {
		if err = s.names.rename(next.preparedPath, s.to.File); err == nil {
			next.preparedPath = s.to.File
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("prepare segment %s: %w", next.preparedPath, err), target.Close(), s.removePrepared(next))
	}
	return next, nil
}

// plan says where a segment goes and how its space is made.
func (s *Manager) plan(number int) (*Segment, nvme.TargetConfig) {
	next := &Segment{Number: number}
	if t := s.names.rotation; t != nil {
		next.preparedPath, next.size, next.softLimit = t.prepared(number), t.preparedSize(), uint64(t.Size)
		return next, nvme.TargetConfig{Path: next.preparedPath, Create: true, Exclusive: true, Buffered: true, Size: next.size, Prepare: preparation(s.to.Prepare)}
	}
	if s.to.Opened != "" {
		next.preparedPath = s.to.File
		return next, nvme.TargetConfig{Path: s.to.Opened, Buffered: true}
	}
	if s.to.Exact {
		next.preparedPath = s.exactPrepared()
		return next, nvme.TargetConfig{Path: next.preparedPath, Create: true, Exclusive: true, Buffered: true}
	}
	next.preparedPath, next.size = s.names.Prepared(number), uint64(s.to.Segment.Size)
	return next, nvme.TargetConfig{Path: next.preparedPath, Create: true, Exclusive: true, Size: next.size, Prepare: preparation(s.to.Prepare)}
}

// enough is how many bytes a batch has that more than one packet is in. Of a file that is to have a size they are a sixteenth, so that
// what is left at its end is small.
func (s *Manager) BatchLimit(limit uint64) uint64 {
	size := uint64(s.to.Rotate.Size)
	if size == 0 {
		return limit
	}
	return min(limit, max(size/16, minBatch), size-min(size, s.headLen+uint64(s.align)))
}

// leastBatch is how long batches are in small files.
const minBatch = 16 << 10

// leastSegment is the least size of a segment: a quarter of it holds any packet.
const minSegment = 1 << 20

// Align is the alignment of offsets in every segment, in bytes.
func (s *Manager) Align() uint32 { return s.align }

// Size is the size of every segment in bytes.
func (s *Manager) Size() uint64 { return s.size }

// Numbers returns the number of the run's first packet, where packets have numbers: in a ring.
func (s *Manager) Numbers() (first uint64, ok bool) {
	if s.ring == nil {
		return 0, false
	}
	return s.ring.base, true
}

// Rotates reports whether files have names as tcpdump's -C, -G and -W give them.
func (s *Manager) Rotates() bool { return s.names.rotation != nil }

// WaitForSpace counts the time for which the free-space reserve keeps the worker from writing. The worker calls it when it can write nothing.
func (s *Manager) WaitForSpace(now time.Time) { s.space.wait(now) }

// EndWait ends such a wait.
func (s *Manager) EndWait() { s.space.endWait() }

// Consequence says what happens as long as nothing can be written.
func (s *Manager) Consequence() string { return s.consequence }

// Blocked is what keeps the next segment from being ready; nil: nothing does.
func (s *Manager) Blocked() error { return loaded(&s.blocked) }

// Failure is why nothing more is durable; nil: all is well.
func (s *Manager) Failure() error { return loaded(&s.failure) }

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
func (s *Manager) writeHead(next *Segment) (err error) {
	if s.ring == nil {
		if next.id, err = newSegmentID(); err != nil {
			return err
		}
	}
	next.align = max(pcapng.MinAlign, next.Target.Alignment().Offset)
	if s.maxAlign != 0 && next.align > s.maxAlign {
		return fmt.Errorf("layout slot pads packets to %d bytes, and this disk takes multiples of %d only: use layout: packed", s.maxAlign, next.align)
	}
	head, err := s.head(pcapng.Segment{ID: next.id, Align: next.align, FirstPacket: next.firstPacket})
	if err != nil {
		return err
	}
	next.Next = uint64(len(head))
	if next.size == 0 {
		next.size = unboundedSize
		if s.space.keep == 0 {
			next.allowed.Store(unboundedSize)
		}
	} else if !next.Fits(uint64(next.align)) {
		return fmt.Errorf("%d bytes are too few for the head of %d bytes: use larger segments", next.size, len(head))
	}
	if s.ring != nil {
		head = append(head, make([]byte, next.align)...) // an earlier end there would be this segment's
	}
	return next.writeHead(head)
}

// adopt gives a segment that was taken its final name.
func (s *Manager) activate(next *Segment, at time.Time) {
	if final, err := s.commitName(next, at); err != nil {
		s.fail(err)
	} else {
		next.finalPath.Store(&final)
	}
	if next.Unbounded() {
		s.running.Add(1)
		go s.preallocate(next)
	}
	s.prune()
}

// christen names a segment that was taken, durably, and returns its path. Where it cannot, nothing in the segment is durable.
func (s *Manager) commitName(next *Segment, at time.Time) (final string, err error) {
	if s.ring != nil || s.to.Opened != "" {
		return next.preparedPath, s.addToManifest(next)
	}
	final, err = s.names.commitName(next, at, s.to.Exact)
	if err != nil {
		s.setBlocked(fmt.Errorf("name segment: %w", err))
		final = next.preparedPath // recovery finds it there
	}
	err = s.names.dir.Sync()
	if s.manifest == nil && errors.Is(err, unix.EINVAL) { // this file system has no such call: fsync(2)
		s.log.Warn("the name of a segment may not outlast a loss of power", "path", final, "why", err)
		err = nil
	}
	if err != nil {
		return final, fmt.Errorf("flush the name of segment %s: %w; what was written since may be lost", final, err)
	}
	return final, s.addToManifest(next)
}

// discard removes a segment nobody took. One on a ring is ended with nothing in it,
// so that the next start may begin it again.
func (s *Manager) discard(next *Segment) {
	if s.ring != nil {
		if err := s.sealSlot(next); err != nil {
			s.log.Warn("unused segment stays behind", "why", err)
		}
		return
	}
	if err := errors.Join(next.Target.Close(), s.removePrepared(next)); err != nil {
		s.log.Warn("unused segment stays behind", "why", err)
	}
}

func (s *Manager) removePrepared(next *Segment) error {
	if s.to.Opened != "" {
		return nil // for who made it
	}
	if err := s.names.remove(next.preparedPath); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// Close finishes the segments given back, removes the unused one and returns
// what went wrong in finishing. The worker gives nothing back any more.
func (s *Manager) Close() error {
	close(s.stop)
	close(s.retired)
	s.running.Wait()
	if s.indexer != nil {
		s.indexer.close()
	}
	s.usageCache.end()
	return errors.Join(append(s.sealErrors, s.closeManifest(), s.closeDevice(), s.closeDir())...)
}

// closeDir closes the directory of files.
func (s *Manager) closeDir() error {
	if s.names.dir == nil {
		return nil
	}
	return s.names.dir.Close()
}

func (s *Manager) closeDevice() error {
	if s.ring == nil {
		return nil
	}
	return s.ring.Close()
}
