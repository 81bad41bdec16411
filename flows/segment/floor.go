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
