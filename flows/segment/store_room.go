package segment

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/pcapng"
)

// besides is the room for what the file system itself keeps of a file, such as where its blocks are.
const metadataSlack = 1 << 20

// makeRoom removes the oldest segments until there is room for so many bytes of a file above the floor.
func (s *Manager) reclaim(need uint64) error {
	if s.space.keep == 0 {
		return nil
	}
	for {
		above, err := s.space.measure()
		if err != nil || above >= int64(need+metadataSlack) {
			s.space.isShort.Store(err != nil)
			return err
		}
		if !s.removeOldest() {
			s.space.isShort.Store(true)
			return s.space.errFull()
		}
		s.waitForRoom(above)
	}
}

// awaitRoom waits a while until more is free than was: a file system may take its time to remove a file, and one that somebody
// reads stays until that is closed.
func (s *Manager) waitForRoom(above int64) {
	for end := time.Now().Add(RetryInterval); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if now, err := s.space.measure(); err != nil || now > above {
			return
		}
	}
}

// guard keeps the floor when it is others that take the room.
func (s *Manager) monitorSpace() {
	defer s.running.Done()
	tick := time.NewTicker(RetryInterval)
	defer tick.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-tick.C:
		}
		for {
			above, err := s.space.measure()
			if err != nil || above >= 0 || !s.removeOldest() {
				break
			}
			s.waitForRoom(above)
		}
	}
}

// removeOldest removes the oldest complete segment, and reports whether there was one that may go. A log keeps its last one, which says where it goes on.
func (s *Manager) removeOldest() bool {
	s.pruneLock.Lock()
	defer s.pruneLock.Unlock()
	if s.to.Exact && s.names.rotation == nil {
		return false
	}
	found, err := s.names.list()
	if err != nil {
		s.log.Warn("old segments stay", "why", err)
		return false
	}
	var complete []pcapng.Named
	for _, e := range found {
		if !e.Prepared && int64(e.Number) <= s.sealed.Load() {
			complete = append(complete, e)
		}
	}
	if s.to.Acknowledge != "" {
		complete = complete[:max(0, len(complete)-1)]
	}
	for _, e := range complete {
		if s.trimManifest(e.Number+1) && s.removeSegment(e.Path, &s.removed.keepFree) {
			return true
		}
	}
	return false
}

// noRoom reports whether a write failed for a reason that passes when somebody
// makes room.
func NoSpace(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)
}
