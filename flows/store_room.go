package flows

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/pcapng"
)

// besides is the room for what the file system itself keeps of a file, such as where its blocks are.
const besides = 1 << 20

// makeRoom removes the oldest segments until there is room for so many bytes of a file above the floor.
func (s *store) makeRoom(need uint64) error {
	if s.floor.keep == 0 {
		return nil
	}
	for {
		above, err := s.floor.look()
		if err != nil || above >= int64(need+besides) {
			s.floor.short.Store(err != nil)
			return err
		}
		if !s.removeOldest() {
			s.floor.short.Store(true)
			return s.floor.full()
		}
		s.awaitRoom(above)
	}
}

// awaitRoom waits a while until more is free than was: a file system may take its time to remove a file, and one that somebody
// reads stays until that is closed.
func (s *store) awaitRoom(above int64) {
	for end := time.Now().Add(retry); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if now, err := s.floor.look(); err != nil || now > above {
			return
		}
	}
}

// guard keeps the floor when it is others that take the room.
func (s *store) guard() {
	defer s.running.Done()
	tick := time.NewTicker(retry)
	defer tick.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-tick.C:
		}
		for {
			above, err := s.floor.look()
			if err != nil || above >= 0 || !s.removeOldest() {
				break
			}
			s.awaitRoom(above)
		}
	}
}

// removeOldest removes the oldest complete segment, and reports whether there was one that may go. A log keeps its last one, which says where it goes on.
func (s *store) removeOldest() bool {
	s.pruning.Lock()
	defer s.pruning.Unlock()
	if s.to.Exact && s.names.turns == nil {
		return false
	}
	found, err := s.names.list()
	if err != nil {
		s.log.Warn("old segments stay", "why", err)
		return false
	}
	var complete []pcapng.Named
	for _, e := range found {
		if !e.Prepared && int64(e.Number) <= s.settled.Load() {
			complete = append(complete, e)
		}
	}
	if s.to.Acknowledge != "" {
		complete = complete[:max(0, len(complete)-1)]
	}
	for _, e := range complete {
		if s.forget(e.Number+1) && s.removeSegment(e.Path, &s.removed.keepFree) {
			return true
		}
	}
	return false
}

// noRoom reports whether a write failed for a reason that passes when somebody
// makes room.
func noRoom(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)
}
