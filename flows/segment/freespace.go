package segment

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/counter"
	"github.com/unifiedd/unifiedd/internal/pcapng"
)

// freeSpace keeps a reserve free on the file system of a flow's files. The manager deletes the
// oldest segments for it. If that is not enough, nothing is written until there is space.
type freeSpace struct {
	keep config.Room // 0: no reserve
	dir  string
	dev  uint64 // device number of the file system

	size         atomic.Uint64   // bytes of the file system
	free         atomic.Uint64   // bytes when last measured
	reserve      atomic.Uint64   // bytes to keep free
	isShort      atomic.Bool     // no space for the next segment or extension
	waits        counter.Counter // times that writing was blocked
	waited       counter.Counter // nanoseconds for which writing was blocked
	waitingSince time.Time       // time up to which waited is counted; the worker's
}

// reclaimLocks has one lock for each file system. Only one flow at a time reclaims space there and
// uses it.
var reclaimLocks sync.Map

// open begins to keep a reserve on the file system of a directory.
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

// removes reports whether segments are deleted for the reserve. For that of the defaults nothing is deleted.
func (f *freeSpace) removes() bool { return f.keep != 0 && f.keep != config.DefaultRoom }

// lock excludes other flows from reclaiming and using space of the file system.
func (f *freeSpace) lock() (unlock func()) {
	if f.keep == 0 {
		return func() {}
	}
	m, _ := reclaimLocks.LoadOrStore(f.dev, &sync.Mutex{})
	m.(*sync.Mutex).Lock()
	return m.(*sync.Mutex).Unlock
}

// measure returns the free bytes above the reserve. They are negative while the reserve is used up.
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
	if st.Blocks == 0 && f.keep == config.DefaultRoom { // the file system does not say
		return math.MaxInt64, nil
	}
	f.size.Store(st.Blocks * uint64(st.Bsize))
	f.free.Store(free)
	f.reserve.Store(least)
	return int64(free) - int64(least), nil
}

// errFull is the error when the reserve leaves no space.
func (f *freeSpace) errFull() error {
	remedy := "by default: make room, limit segment.keep, or set keep_free"
	if f.removes() {
		remedy = "and no older segment is left to remove: make room, or lower keep_free"
	}
	return fmt.Errorf("%w above keep_free: of %d bytes free in %s, %d are to stay free (%s %s)", unix.ENOSPC, f.free.Load(), f.dir, f.reserve.Load(), f.keep, remedy)
}

// wait counts the time for which the reserve blocks writing. The worker calls it.
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

// endWait ends a wait. The worker calls it.
func (f *freeSpace) endWait() { f.waitingSince = time.Time{} }

// status returns nil without a reserve.
func (f *freeSpace) status() *status.FreeSpace {
	if f.keep == 0 {
		return nil
	}
	return &status.FreeSpace{
		KeepFree: f.keep.String(), Bytes: f.reserve.Load(), Free: f.free.Load(), Size: f.size.Load(),
		Pauses: f.waits.Load(), Paused: float64(f.waited.Load()) / 1e9,
	}
}

// metadataSlack is the space for a file's metadata, such as its extents.
const metadataSlack = 1 << 20

// reclaim deletes the oldest segments until need bytes are free above the reserve.
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
		if !s.space.removes() || !s.removeOldest() {
			s.space.isShort.Store(true)
			return s.space.errFull()
		}
		s.waitForRoom(above)
	}
}

// waitForRoom waits until more than above is free, at most RetryInterval. A file system may take
// time to free a deleted file, and the space of a file that a reader has open is not freed.
func (s *Manager) waitForRoom(above int64) {
	for end := time.Now().Add(RetryInterval); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if now, err := s.space.measure(); err != nil || now > above {
			return
		}
	}
}

// monitorSpace deletes the oldest segments when other programs use the reserve.
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

// removeOldest deletes the oldest complete segment. It returns false when there is none to delete.
// A log keeps its last segment, which holds the position from which the log continues.
func (s *Manager) removeOldest() bool {
	s.pruneLock.Lock()
	defer s.pruneLock.Unlock()
	if s.to.Exact && s.names.rotation == nil {
		return false
	}
	found, err := s.names.list()
	if err != nil {
		s.log.Warn("could not remove old segments", "err", err)
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
		if !s.trimManifest(e.Number + 1) {
			continue
		}
		s.logRemoval(e.Path, e.Number, "keep_free", s.space.keep.String())
		if s.removeSegment(e.Path, &s.removed.keepFree) {
			return true
		}
	}
	return false
}

// NoSpace reports whether a write failed for lack of space that can be freed.
func NoSpace(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)
}
