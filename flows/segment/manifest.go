package segment

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/unifiedd/unifiedd/flows/journal"
	"github.com/unifiedd/unifiedd/internal/ring"
)

// Manifest keeps the manifest of a log while its flow runs: the segments that must exist, the
// durable position, and the positions that may have been assigned. I/O runs on the manager's
// goroutines. The worker calls Room and Changed only.
type Manifest struct {
	End      journal.End // of the log when the run began
	Run      journal.Run
	Received func() uint64 // messages received by this run
	Durable  func() uint64 // how many of them are durable
	// Group changes what a group's log has in addition; nil: no group. It returns false if nothing has
	// changed. Any goroutine calls it.
	Group  func(*journal.Manifest) bool
	keeper *journal.Keeper

	news        chan struct{} // holds one value if there may be something to write
	reserved    atomic.Uint64 // messages get positions below it
	low         atomic.Uint64 // from this position on, more are to be reserved
	assigned    atomic.Uint64 // last position for which Room found that
	extendBy    uint64        // positions that are reserved at once
	extended    time.Time
	nextWritten time.Time // when Next was last written
	flushed     bool      // the last write is durable
}

const (
	// minReserve and maxReserve bound extendBy. If the newest segment is lost, the log skips at most
	// that many positions.
	minReserve, maxReserve = 1 << 16, 1 << 22
	// manifestInterval is the least time between updates, and manifestWriteInterval between writes without a flush.
	manifestInterval, manifestWriteInterval = 10 * time.Millisecond, 50 * time.Millisecond
	// manifestFlushIdle is the idle time after which the last write is flushed.
	manifestFlushIdle = time.Second
)

// NewManifest returns the manifest of a log that a run continues at its end. It has no file until a Manager opens it.
func NewManifest(end journal.End, run journal.Run, received, durable func() uint64) *Manifest {
	return &Manifest{End: end, Run: run, Received: received, Durable: durable, news: make(chan struct{}, 1)}
}

// Room returns how many more messages may get positions; position is the last one assigned. The
// worker calls it. When few are left it wakes the goroutine that reserves more.
func (m *Manifest) Room(position uint64) int {
	if position >= m.low.Load() {
		m.assigned.Store(position)
		m.Changed()
	}
	return int(m.reserved.Load() - 1 - position)
}

// Changed says that Durable, or what Group writes, is not what it was. Any goroutine may call it. It costs nothing while
// an earlier call waits for its turn.
func (m *Manifest) Changed() {
	select {
	case m.news <- struct{}{}:
	default:
	}
}

// reserve lets messages have positions below one.
func (m *Manifest) reserve(below uint64) {
	m.low.Store(below - m.extendBy/2)
	m.reserved.Store(below)
}

// open creates or continues the manifest, after the segments are recovered. It returns the number
// of the next segment: next or higher.
func (m *Manifest) open(s *Manager, next int) (number uint64, err error) {
	path := s.to.File
	if s.ring != nil {
		path = s.to.Device
		if s.ring.created {
			m.End.Manifest = nil // it belongs to the ring that was replaced
		}
	}
	now, err := journal.Resume(path, m.End, uint64(next))
	if err != nil {
		return 0, err
	}
	m.extendBy = minReserve
	now.Flags, now.Boot = now.Flags&^journal.FlagEnded, journal.BootID()
	now.Reserved = now.Next + m.extendBy
	number = max(uint64(next), now.After())
	now.Expect(number, m.Run)
	if s.ring != nil {
		m.keeper, err = journal.KeepRing(s.ring.file, now, m.End.Manifest == nil)
	} else {
		m.keeper, err = journal.KeepFile(s.names.dir, filepath.Base(path)+journal.ManifestSuffix, now, func(f *os.File) error {
			return errors.Join(lockFile(int(f.Fd())), s.owner.apply(int(f.Fd())))
		})
	}
	if err != nil {
		return 0, err
	}
	if err := m.keeper.Update(true, m.group); err != nil {
		return 0, errors.Join(err, m.keeper.Close())
	}
	m.flushed = true
	m.reserve(now.Reserved)
	return now.After(), nil
}

// group writes what a group's log has in its manifest in addition.
func (m *Manifest) group(n *journal.Manifest) {
	if m.Group != nil {
		m.Group(n)
	}
}

// nextPosition returns a lower bound of the position of the next record.
func (m *Manifest) nextPosition() uint64 { return m.End.Next + m.Durable() }

// addSegment adds a segment whose name is durable.
func (m *Manifest) addSegment(segment uint64) error {
	return m.update(func(n *journal.Manifest) { n.Begin(segment, m.Run) })
}

// trim drops the segments before oldest from the manifest durably. They may be deleted then.
func (m *Manifest) trim(oldest uint64) error {
	if m.keeper.Now().Oldest >= oldest {
		return nil
	}
	return m.update(func(n *journal.Manifest) { n.Forget(oldest) })
}

// update changes the manifest durably.
func (m *Manifest) update(change func(*journal.Manifest)) error {
	next := m.nextPosition()
	return m.keeper.Update(true, func(n *journal.Manifest) {
		n.Next = max(n.Next, next)
		m.group(n)
		change(n)
	})
}

// write extends the reserved positions if half are used, and writes the durable position. It returns after which time it
// must be called again though nothing has changed; 0: it need not.
func (m *Manifest) write(now time.Time) (again time.Duration, err error) {
	used, next := max(m.End.Next+m.Received(), m.assigned.Load()), m.nextPosition()
	last, age := m.keeper.Now(), now.Sub(m.nextWritten)
	changed := next > last.Next || m.Group != nil && m.Group(&last)
	switch {
	case last.Reserved-min(last.Reserved, used) <= m.extendBy/2:
		return 0, m.extend(used, now)
	case changed && age < manifestWriteInterval:
		return manifestWriteInterval - age, nil
	case changed:
		m.nextWritten, m.flushed = now, false
		return manifestFlushIdle, m.keeper.Update(false, func(n *journal.Manifest) {
			n.Next = max(n.Next, next)
			m.group(n)
		})
	case m.flushed:
		return 0, nil
	case age < manifestFlushIdle:
		return manifestFlushIdle - age, nil
	}
	m.flushed = true
	return 0, m.update(func(*journal.Manifest) {})
}

// extend reserves more positions: more at a time if it was called a short while ago.
func (m *Manifest) extend(used uint64, now time.Time) error {
	if now.Sub(m.extended) < time.Second {
		m.extendBy = min(2*m.extendBy, maxReserve)
	} else {
		m.extendBy = max(m.extendBy/2, minReserve)
	}
	reserved := used + m.extendBy
	if err := m.update(func(n *journal.Manifest) { n.Reserved = max(n.Reserved, reserved) }); err != nil {
		return err
	}
	m.reserve(reserved)
	m.extended, m.nextWritten, m.flushed = now, now, true
	return nil
}

// close records whether the run ended cleanly.
func (m *Manifest) close(orderly bool) error {
	orderly = orderly && m.Received() == m.Durable()
	err := m.update(func(n *journal.Manifest) {
		if orderly {
			n.Flags |= journal.FlagEnded
			n.Reserved = n.Next
		}
	})
	return errors.Join(err, m.keeper.Close())
}

// keepManifest updates the manifest until the manager closes. While nothing changes it sleeps.
func (s *Manager) keepManifest() {
	defer s.running.Done()
	for {
		var again time.Duration
		if err := s.retryNoSpace(func() (err error) { again, err = s.manifest.write(time.Now()); return err }); err != nil {
			s.fail(err)
			return
		}
		if !s.rest(nil, manifestInterval) { // what changes now waits in news
			return
		}
		if again > 0 {
			again = max(again-manifestInterval, 1)
		}
		if !s.rest(s.manifest.news, again) {
			return
		}
	}
}

// rest waits for news, at most for a time; 0: without a limit. It returns false when the manager closes.
func (s *Manager) rest(news <-chan struct{}, most time.Duration) bool {
	var over <-chan time.Time
	if most > 0 {
		t := time.NewTimer(most)
		defer t.Stop()
		over = t.C
	}
	select {
	case <-news:
	case <-over:
	case <-s.stop:
		return false
	}
	return true
}

// retryNoSpace repeats do until the disk has space for it or the manager closes.
func (s *Manager) retryNoSpace(do func() error) error {
	for full := false; ; full = true {
		err := do()
		if !NoSpace(err) {
			if full {
				s.setBlocked(nil)
			}
			return err
		}
		s.setBlocked(err)
		select {
		case <-time.After(RetryInterval):
		case <-s.stop:
			return err
		}
	}
}

// fail ends the flow as a failed flush does: messages after this point are not acknowledged as
// durable.
func (s *Manager) fail(err error) {
	if s.failure.CompareAndSwap(nil, &err) {
		s.log.Error("no more data becomes durable", "err", err)
	}
}

// trimManifest drops the segments before oldest from a log's manifest, and reports whether they may
// be deleted. A capture has no manifest.
func (s *Manager) trimManifest(oldest int) bool {
	if s.manifest == nil {
		return true
	}
	if err := s.manifest.trim(uint64(max(oldest, 0))); err != nil {
		s.log.Warn("could not remove an old segment", "err", fmt.Errorf("note that it is not kept: %w", err))
		return false
	}
	return true
}

// openManifest opens a log's manifest and returns the number of the next segment.
func (s *Manager) openManifest(number int) (int, error) {
	if s.manifest == nil {
		return number, nil
	}
	least, err := s.manifest.open(s, number)
	if err == nil && s.ring != nil && least > s.ring.first {
		s.ring.first, s.ring.base = least, ring.Base(least)
	}
	return max(number, int(least)), err
}

// addToManifest adds a segment to a log's manifest. Before that, no message in the segment may be
// acknowledged as durable.
func (s *Manager) addToManifest(next *Segment) error {
	if s.manifest == nil {
		return nil
	}
	return s.retryNoSpace(func() error { return s.manifest.addSegment(uint64(next.Number)) })
}

// closeManifest records how the run ended.
func (s *Manager) closeManifest() error {
	if s.manifest == nil {
		return nil
	}
	return s.manifest.close(len(s.sealErrors) == 0 && s.failure.Load() == nil)
}

// inManifest reports whether a log's manifest contains a segment.
func (s *Manager) inManifest(number int) bool {
	return s.manifest != nil && s.manifest.End.Manifest != nil && s.manifest.End.Manifest.Names(uint64(number))
}
