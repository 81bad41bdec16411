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

// Manager owns the segments of one flow: files, or the slots of a ring on a device. It creates the
// next segment before it is needed, seals full ones and deletes the oldest. File I/O runs on the
// manager's goroutines. The worker calls only Acquire, Retire and WaitForSpace, which do no I/O.
type Manager struct {
	to    config.To
	names names
	ring  *ringDevice // nil for files
	head  func(pcapng.Segment) ([]byte, error)
	log   *slog.Logger
	owner owner
	space freeSpace
	// consequence describes the effect on the flow while nothing can be written, for messages.
	consequence string

	maxAlign uint32 // largest that the layout can pad to; 0: any

	align uint32 // of every segment
	size  uint64 // of every segment

	headLen uint64 // of every segment

	ready        chan *Segment
	activated    chan time.Time // the time of acquisition, which names the segment
	retired      chan *Segment
	stop         chan struct{}
	blocked      atomic.Pointer[error] // why the next segment is not ready; nil: no reason
	acquired     atomic.Uint64         // segments that the worker acquired
	sealErrors   []error               // sealSegments owns it until Close
	sealed       atomic.Int64          // number of the last sealed segment
	written      atomic.Int64          // number of the last segment with a batch on the disk
	begun        chan struct{}         // holds one value when written has changed
	pruneLock    sync.Mutex
	complete     map[string]complete // what prune knows of complete segments; pruneLock guards it
	firstNumber  int                 // of this run
	removed      removals
	newestBefore uint64 // time of the newest packet of earlier runs; 0: unknown
	newest       func() uint64
	running      sync.WaitGroup
	usageCache   usageCache
	indexer      *indexer // nil: the segments have no indexes

	unreadable uint64                // segments whose heads were unreadable when the run began
	manifest   *Manifest             // of a log; nil: a capture
	failure    atomic.Pointer[error] // why no more data becomes durable

	onComplete func(path string) // called for each complete segment; may be nil
}

// Consequences of a disk that accepts no writes, for messages.
const (
	packetsWait = "packets wait, and are lost in the kernel's rings once those are full"
	clientsWait = "clients wait"
)

// maxRetired is how many retired segments may wait to be sealed. With more, Retire blocks.
const maxRetired = 256

// RetryInterval is the time between attempts at an operation for which the disk had no space.
const RetryInterval = time.Second

// Config describes the segments of a flow.
type Config struct {
	To   config.To
	Head func(pcapng.Segment) ([]byte, error) // returns the bytes at the start of a segment
	Log  *slog.Logger

	Manifest  *Manifest         // of a log; nil: a capture
	MostAlign uint32            // largest alignment in bytes that the layout can pad to; 0: any
	MakeIndex index.Maker       // makes indexes if To asks for them; nil: this process
	Complete  func(path string) // called for each complete segment, on the manager's goroutine; may be nil
	Newest    func() uint64     // time of the newest packet written, in nanoseconds since 1970; nil: not known. Any goroutine may call it
}

// Open recovers the segments of an earlier run, prepares the first segment and starts the manager's
// goroutines. The caller closes the manager after its worker has retired every segment.
func Open(c Config) (*Manager, error) {
	to := c.To
	s := &Manager{
		to: to, head: c.Head, log: c.Log, manifest: c.Manifest, maxAlign: c.MostAlign, onComplete: c.Complete, consequence: packetsWait,
		ready: make(chan *Segment), activated: make(chan time.Time, 1), retired: make(chan *Segment, maxRetired), begun: make(chan struct{}, 1), stop: make(chan struct{}),
	}
	if s.newest = c.Newest; s.newest == nil {
		s.newest = func() uint64 { return 0 }
	}
	if to.Acknowledge != "" { // a log
		s.consequence = clientsWait
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
	s.firstNumber = number
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
	if s.space.removes() && !to.Exact {
		s.running.Add(1)
		go s.monitorSpace()
	}
	if s.manifest != nil {
		s.running.Add(1)
		go s.keepManifest()
	}
	if to.Segment.Keep.Age != 0 && s.ring == nil && !to.Exact {
		s.running.Add(1)
		go s.enforceAge()
	}
	s.running.Add(2)
	go s.prepareSegments(first)
	go s.sealSegments()
	if s.indexer != nil {
		s.indexer.begin(c.MakeIndex, s.names)
	}
	return s, nil
}

// openDirectory opens the directory of the files, looks up their owner and sets up the free-space
// reserve there.
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
	dir := filepath.Dir(s.to.File)
	if s.to.Create {
		if err := os.MkdirAll(dir, 0o750); err != nil {
			return fmt.Errorf("to.create: %w", err)
		}
	}
	if s.names.dir, err = newfile.OpenDir(dir); err != nil {
		return fmt.Errorf("%w%s", err, s.createHint(err))
	}
	return s.space.open(s.to.KeepFree, filepath.Dir(s.to.File))
}

// createHint is the remedy if the directory of the files does not exist. A directory that appears where a disk should be
// mounted would fill another disk, so the user must ask for it.
func (s *Manager) createHint(err error) string {
	switch {
	case !errors.Is(err, os.ErrNotExist):
		return ""
	case s.to.Exact:
		return " (create the directory first)"
	}
	return " (mount the disk, create the directory, or set to.create: true)"
}

// Acquire returns a prepared segment, or nil while none is ready. Files are named after the time
// at. It never blocks.
func (s *Manager) Acquire(at time.Time) *Segment {
	select {
	case next := <-s.ready:
		s.activated <- at // never blocks: prepareSegments reads it once per segment
		s.acquired.Add(1)
		return next
	default:
		return nil
	}
}

// Retire takes back a segment whose batches and name are durable. The manager seals it.
func (s *Manager) Retire(full *Segment) { s.retired <- full }

// Written says that a batch of a segment is on the disk. From the first one on the segment counts as one that is kept, so
// that a segment which gets no packet removes none. The worker calls it for each batch.
func (s *Manager) Written(seg *Segment) {
	if seg.hasBatch {
		return
	}
	seg.hasBatch = true
	s.written.Store(max(s.written.Load(), int64(seg.Number)))
	select {
	case s.begun <- struct{}{}:
	default:
	}
}

// prepareSegments keeps one segment ready.
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

// PacketsBefore returns the number that a segment subtracts from the flow's packet numbers. Packet
// numbers begin at zero in each file. In a ring they continue from segment to segment.
func (s *Manager) PacketsBefore(packets uint64) uint64 {
	if s.ring != nil {
		return 0
	}
	return packets
}

// BeginsEmpty reports whether a file may begin without a packet: one whose name the user chose is there in any case.
func (s *Manager) BeginsEmpty() bool { return s.to.Exact }

// IsLast reports whether no segment follows the one with this number.
func (s *Manager) IsLast(number int) bool {
	if s.names.rotation != nil {
		return s.names.rotation.isLast(number)
	}
	return s.to.Exact
}

// prepareNext prepares a segment. It retries until it succeeds or the manager closes.
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

// setBlocked publishes why the next segment is not ready, and logs each cause once.
func (s *Manager) setBlocked(err error) {
	before := s.blocked.Load()
	if err == nil {
		if before != nil {
			s.log.Info("segments are prepared again")
		}
		s.blocked.Store(nil)
		return
	}
	if before == nil || (*before).Error() != err.Error() {
		s.log.Warn("no segment is ready; "+s.consequence, "err", err)
	}
	s.blocked.Store(&err)
}

// prepare makes a segment: its space, its ID and its head.
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
	s.pruneFor(next.size)
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

// plan chooses the path of a segment and how its space is allocated.
func (s *Manager) plan(number int) (*Segment, nvme.TargetConfig) {
	next := &Segment{Number: number, news: make(chan struct{}, 1)}
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

// BatchLimit returns the largest length in bytes of a batch with more than one packet; limit is the
// layout's. In files with a maximum size it is a sixteenth of that size, so that little space
// remains unused at a file's end.
func (s *Manager) BatchLimit(limit uint64) uint64 {
	size := uint64(s.to.Rotate.Size)
	if size == 0 {
		return limit
	}
	return min(limit, max(size/16, minBatch), size-min(size, s.headLen+uint64(s.align)))
}

// minBatch is the smallest value of BatchLimit.
const minBatch = 16 << 10

// minSegment is the least size of a segment. A quarter of it holds any packet.
const minSegment = 1 << 20

// Align is the alignment of offsets in all segments, in bytes.
func (s *Manager) Align() uint32 { return s.align }

// Size is the size of each segment in bytes.
func (s *Manager) Size() uint64 { return s.size }

// Numbers returns the number of the run's first packet. Only packets in a ring have numbers; ok is
// false for files.
func (s *Manager) Numbers() (first uint64, ok bool) {
	if s.ring == nil {
		return 0, false
	}
	return s.ring.base, true
}

// Rotates reports whether the files are named as with tcpdump's -C, -G and -W.
func (s *Manager) Rotates() bool { return s.names.rotation != nil }

// WaitForSpace counts the time for which the free-space reserve blocks writing. The worker calls it
// in each round in which it cannot write.
func (s *Manager) WaitForSpace(now time.Time) { s.space.wait(now) }

// EndWait ends the wait that WaitForSpace counts.
func (s *Manager) EndWait() { s.space.endWait() }

// Consequence describes the effect on the flow while nothing can be written, for messages.
func (s *Manager) Consequence() string { return s.consequence }

// Blocked returns why the next segment is not ready, or nil. Any goroutine may call it.
func (s *Manager) Blocked() error { return loaded(&s.blocked) }

// Failure returns why nothing more becomes durable, or nil. Any goroutine may call it.
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

// writeHead draws the segment's ID, determines its alignment and size, and writes its head durably.
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
		head = append(head, make([]byte, next.align)...) // overwrite the end marker of an earlier generation
	}
	return next.writeHead(head)
}

// activate commits the name of an acquired segment and preallocates its file.
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
}

// commitName gives an acquired segment its final name durably and returns the path. After an error,
// no batch of the segment may be reported as durable.
func (s *Manager) commitName(next *Segment, at time.Time) (final string, err error) {
	if s.ring != nil || s.to.Opened != "" {
		return next.preparedPath, s.addToManifest(next)
	}
	final, err = s.names.commitName(next, at, s.to.Exact)
	if err != nil {
		s.setBlocked(fmt.Errorf("name segment: %w", err))
		final = next.preparedPath // recovery finds the file there
	}
	err = s.names.dir.Sync()
	if s.manifest == nil && errors.Is(err, unix.EINVAL) { // the file system has no fsync of directories
		s.log.Warn("the name of a segment may be lost in a power failure", "path", final, "err", err)
		err = nil
	}
	if err != nil {
		return final, fmt.Errorf("flush the name of segment %s: %w; what was written since may be lost", final, err)
	}
	return final, s.addToManifest(next)
}

// discard removes a segment that was not acquired. In a ring it writes an end marker to the slot
// instead, so that the next start can use the slot.
func (s *Manager) discard(next *Segment) {
	if s.ring != nil {
		if err := s.sealSlot(next); err != nil {
			s.log.Warn("could not remove an unused segment", "err", err)
		}
		return
	}
	if err := errors.Join(next.Target.Close(), s.removePrepared(next)); err != nil {
		s.log.Warn("could not remove an unused segment", "err", err)
	}
}

func (s *Manager) removePrepared(next *Segment) error {
	if s.to.Opened != "" {
		return nil // the caller made the file
	}
	if err := s.names.remove(next.preparedPath); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// Close seals the retired segments, removes the prepared one and returns errors of sealing. The
// worker must have retired all segments.
func (s *Manager) Close() error {
	close(s.stop)
	close(s.retired)
	s.running.Wait()
	if s.indexer != nil {
		s.indexer.close()
	}
	if !s.to.Exact {
		s.usageCache.end(s.readUsage)
	}
	return errors.Join(append(s.sealErrors, s.closeManifest(), s.closeDevice(), s.closeDir())...)
}

// closeDir closes the directory of the files.
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
