package segment

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/counter"
	"github.com/unifiedd/unifiedd/internal/pcapng"
)

// floor is the room that a flow leaves free on the disk its files are on. The oldest of its
// segments go to keep it; where that is not enough, no more is written until there is room.
type freeSpace struct {
	keep config.Room // 0: there is no floor
	dir  string
	dev  uint64 // the file system's

	free         atomic.Uint64   // bytes when it was last looked at
	reserve      atomic.Uint64   // of those, how many are kept
	isShort      atomic.Bool     // there is no room for what comes next
	waits        counter.Counter // how often writing had to wait for that
	waited       counter.Counter // nanoseconds
	waitingSince time.Time       // while it waits: until when that is counted; the worker's
}

// roomTakers are one lock for each file system: one flow at a time looks for room there and takes it.
var reclaimLocks sync.Map

// open begins to keep room on the file system of a directory.
func (f *freeSpace) open(keep config.Room, dir string) error {
	var st unix.Stat_t
	if keep == 0 {
		return nil
	}
	if err := unix.Stat(dir, &st); err != nil {
		return fmt.Errorf("keep_free of %s: %w (create the directory first)", dir, err)
	}
	f.keep, f.dir, f.dev = keep, dir, st.Dev
	return nil
}

// lock has no other flow take room there meanwhile.
func (f *freeSpace) lock() (unlock func()) {
	if f.keep == 0 {
		return func() {}
	}
	m, _ := reclaimLocks.LoadOrStore(f.dev, &sync.Mutex{})
	m.(*sync.Mutex).Lock()
	return m.(*sync.Mutex).Unlock
}

// look finds how much room there is above the floor, in bytes; below zero, it is not kept.
func (f *freeSpace) measure() (above int64, err error) {
	var st unix.Statfs_t
	for {
		if err = unix.Statfs(f.dir, &st); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return 0, fmt.Errorf("keep_free: ask for the free space of %s: %w", f.dir, err)
	}
	free, least := st.Bavail*uint64(st.Bsize), f.keep.Of(st.Blocks*uint64(st.Bsize))
	f.free.Store(free)
	f.reserve.Store(least)
	return int64(free) - int64(least), nil
}

// full is the error where the floor leaves no room.
func (f *freeSpace) errFull() error {
	return fmt.Errorf("keep_free: %s of %s are to stay free, and no older segment is left to remove (make room, or lower keep_free)", f.keep, f.dir)
}

// wait counts the time for which nothing can be written. It is the worker's.
func (f *freeSpace) wait(now time.Time) {
	if !f.isShort.Load() {
		return
	}
	if f.waitingSince.IsZero() {
		f.waits.Add(1)
	} else {
		f.waited.Add(uint64(max(0, now.Sub(f.waitingSince))))
	}
	f.waitingSince = now
}

// goOn ends a wait. It is the worker's.
func (f *freeSpace) endWait() { f.waitingSince = time.Time{} }

// status is nil where there is no floor.
func (f *freeSpace) status() *status.FreeSpace {
	if f.keep == 0 {
		return nil
	}
	return &status.FreeSpace{
		KeepFree: f.keep.String(), Bytes: f.reserve.Load(), Free: f.free.Load(),
		Pauses: f.waits.Load(), Paused: float64(f.waited.Load()) / 1e9,
	}
}

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
