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

// manifest keeps the manifest of a log while its flow runs: which segments must be found, which records were durable, and which positions may
// have been given. What blocks happens on the store's goroutines; the worker calls room only.
type Manifest struct {
	End      journal.End // how the log was found
	Run      journal.Run
	Received func() uint64 // messages of this run that came
	Durable  func() uint64 // of those, how many are durable, the first ones
	keeper   *journal.Keeper

	reserved    atomic.Uint64 // no message may be given this position
	extendBy    uint64        // by how many positions the reservation is extended
	extended    time.Time
	nextWritten time.Time // when Next was written last
	flushed     bool      // what was written last is durable
}

const (
	// leastStep and mostStep bound how many positions are reserved at once. As many may be passed over where the newest segment is lost.
	minReserve, maxReserve = 1 << 16, 1 << 22
	// manifestTick is how often is looked for what the manifest is to say, and manifestNote how often it is written without a flush.
	manifestInterval, manifestWriteInterval = 10 * time.Millisecond, 50 * time.Millisecond
	// manifestIdle is how long nothing has come when what was written is flushed.
	manifestFlushIdle = time.Second
)

// room is how many messages may have positions behind one.
func (m *Manifest) Room(position uint64) int {
	return int(m.reserved.Load() - 1 - position)
}

// open begins to keep the manifest. The segments are mended, and the next one has the number next, or that which is returned if it is higher.
func (m *Manifest) open(s *Manager, next int) (number uint64, err error) {
	path := s.to.File
	if s.ring != nil {
		path = s.to.Device
		if s.ring.created {
			m.End.Manifest = nil // it was of the ring that was there before
		}
	}
	now, err := journal.Resume(path, m.End, uint64(next))
	if err != nil {
		return 0, err
	}
	m.extendBy = minReserve
	now.Flags, now.Boot = now.Flags&^journal.FlagEnded, journal.BootID()
	now.Reserved = now.Next + m.extendBy
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
	if err := m.keeper.Update(true, func(*journal.Manifest) {}); err != nil {
		return 0, errors.Join(err, m.keeper.Close())
	}
	m.flushed = true
	m.reserved.Store(now.Reserved)
	return now.After(), nil
}

// next is a lower bound of the position of the next record.
func (m *Manifest) nextPosition() uint64 { return m.End.Next + m.Durable() }

// begin has the manifest name a segment, which is in use and whose name is durable.
func (m *Manifest) addSegment(segment uint64) error {
	return m.update(func(n *journal.Manifest) { n.Begin(segment, m.Run) })
}

// forget has the manifest name segments from one on only. They may be removed then.
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
		change(n)
	})
}

// tick writes what has changed.
func (m *Manifest) tick(now time.Time) error {
	used, next := m.End.Next+m.Received(), m.nextPosition()
	last := m.keeper.Now()
	switch {
	case last.Reserved-min(last.Reserved, used) < m.extendBy/2:
		if now.Sub(m.extended) < time.Second {
			m.extendBy = min(2*m.extendBy, maxReserve)
		} else {
			m.extendBy = max(m.extendBy/2, minReserve)
		}
		reserved := used + m.extendBy
		if err := m.update(func(n *journal.Manifest) { n.Reserved = max(n.Reserved, reserved) }); err != nil {
			return err
		}
		m.reserved.Store(reserved)
		m.extended, m.nextWritten, m.flushed = now, now, true
	case next > last.Next && now.Sub(m.nextWritten) >= manifestWriteInterval:
		m.nextWritten, m.flushed = now, false
		return m.keeper.Update(false, func(n *journal.Manifest) { n.Next = max(n.Next, next) })
	case !m.flushed && now.Sub(m.nextWritten) >= manifestFlushIdle:
		m.flushed = true
		return m.update(func(*journal.Manifest) {})
	}
	return nil
}

// close says how the run ended, and ends.
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

// keepManifest writes the manifest until the store closes.
func (s *Manager) keepManifest() {
	defer s.running.Done()
	tick := time.NewTicker(manifestInterval)
	defer tick.Stop()
	for {
		select {
		case <-s.stop:
			return
		case now := <-tick.C:
			if err := s.retryNoSpace(func() error { return s.manifest.tick(now) }); err != nil {
				s.fail(err)
				return
			}
		}
	}
}

// withRoom does something again until the disk has room for it, or the store closes.
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

// breakOff ends the flow as a failed flush does: what comes from now on is not acknowledged.
func (s *Manager) fail(err error) {
	if s.failure.CompareAndSwap(nil, &err) {
		s.log.Error("nothing more is durable", "err", err)
	}
}

// forget has a log's manifest name segments from one on only, and reports whether it does. Captures have none.
func (s *Manager) trimManifest(oldest int) bool {
	if s.manifest == nil {
		return true
	}
	if err := s.manifest.trim(uint64(max(oldest, 0))); err != nil {
		s.log.Warn("an old segment stays", "err", fmt.Errorf("note that it is not kept: %w", err))
		return false
	}
	return true
}

// openManifest begins to keep a log's manifest and returns the number of the next segment.
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

// nameInManifest has a log's manifest name a segment before anything in it is acknowledged as durable.
func (s *Manager) addToManifest(next *Segment) error {
	if s.manifest == nil {
		return nil
	}
	return s.retryNoSpace(func() error { return s.manifest.addSegment(uint64(next.Number)) })
}

// closeManifest says in the manifest how the run ended.
func (s *Manager) closeManifest() error {
	if s.manifest == nil {
		return nil
	}
	return s.manifest.close(len(s.sealErrors) == 0 && s.failure.Load() == nil)
}

// named reports whether a log's manifest names a segment.
func (s *Manager) inManifest(number int) bool {
	return s.manifest != nil && s.manifest.End.Manifest != nil && s.manifest.End.Manifest.Names(uint64(number))
}
