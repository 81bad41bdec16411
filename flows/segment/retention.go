package segment

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/internal/index"
	"github.com/unifiedd/unifiedd/internal/pcapng"
)

// complete is a complete segment on the disk.
type complete struct {
	pcapng.Named
	bytes uint64    // that it takes on the disk
	ended time.Time // when it was written last
	empty bool      // it has no packets
}

// prune deletes the oldest segments that to.segment.keep does not allow.
func (s *Manager) prune() { s.pruneFor(0) }

// pruneFor is prune before a segment of that many bytes is made. A segment that is not sealed yet is deleted after that.
func (s *Manager) pruneFor(next uint64) {
	s.pruneLock.Lock()
	defer s.pruneLock.Unlock()
	if s.ring != nil || s.to.Exact || s.to.Segment.Keep == (config.Keep{}) {
		return
	}
	found, err := s.names.list()
	if err != nil {
		s.log.Warn("could not remove old segments", "err", err)
		return
	}
	all, open := s.split(found)
	for _, e := range all[:s.firstKept(all, open, next)] {
		if !s.trimManifest(e.Number + 1) {
			return
		}
		s.logRemoval(e.Path, e.Number, "segment.keep", s.to.Segment.Keep.String())
		s.removeSegment(e.Path, &s.removed.keep)
	}
}

// open are the segments that cannot be deleted yet.
type open struct {
	begun int // that have packets
	bytes uint64
}

// split returns the complete segments, oldest first. What it has read of them is kept for the next call, because they do
// not change.
func (s *Manager) split(found []pcapng.Named) (all []complete, o open) {
	known := make(map[string]complete, len(found))
	for _, e := range found {
		if e.Prepared || int64(e.Number) > s.sealed.Load() {
			o.bytes += uint64(s.to.Segment.Size)
			if int64(e.Number) <= s.written.Load() {
				o.begun++
			}
			continue
		}
		c, ok := s.complete[e.Path]
		if !ok {
			if c, ok = s.readComplete(e); !ok {
				continue // deleted in the meantime
			}
		}
		known[e.Path] = c
		if s.to.Segment.Keep.Bytes != 0 && s.to.Index {
			c.bytes += s.diskBytes(filepath.Base(e.Path) + index.Suffix) // may have been made since
		}
		all = append(all, c)
	}
	s.complete = known
	return all, o
}

// readComplete reads what prune must know of a segment.
func (s *Manager) readComplete(e pcapng.Named) (c complete, ok bool) {
	f, err := s.names.open(e.Path, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return c, false
	}
	c = complete{Named: e, bytes: s.diskBytes(filepath.Base(e.Path))}
	if st, err := s.names.dir.Stat(filepath.Base(e.Path)); err == nil {
		c.ended = time.Unix(st.Mtim.Unix())
	}
	if err != nil {
		return c, true
	}
	defer f.Close()
	c.empty = holdsNothing(f)
	return c, true
}

// holdsNothing reports whether a segment is complete and has no packets. A damaged one counts as one with packets.
func holdsNothing(f *os.File) bool {
	info, err := f.Stat()
	if err != nil {
		return false
	}
	n, complete, err := pcapng.Count(f, info.Size())
	return err == nil && complete && n == 0
}

// diskBytes returns what a file takes on the disk; 0: there is none.
func (s *Manager) diskBytes(name string) uint64 {
	st, err := s.names.dir.Stat(name)
	if err != nil {
		return 0
	}
	return max(uint64(st.Size), uint64(st.Blocks)*512) // some file systems count no blocks
}

// firstKept returns the index of the oldest segment that every limit allows. Those without packets are not counted. A log
// keeps its last segment with records, which has the position where the log continues.
func (s *Manager) firstKept(all []complete, o open, next uint64) int {
	keep, now := s.to.Segment.Keep, time.Now()
	count, bytes := o.begun, o.bytes+next
	needed := s.to.Acknowledge != ""
	first := len(all)
	for i := len(all) - 1; i >= 0; i-- {
		if c := &all[i]; !c.empty {
			over := keep.Count != 0 && count+1 > keep.Count ||
				keep.Bytes != 0 && bytes+c.bytes > uint64(keep.Bytes) ||
				keep.Age != 0 && now.Sub(c.ended) > keep.Age
			if over && !needed {
				return first
			}
			count, bytes, needed = count+1, bytes+c.bytes, false
		}
		first = i
	}
	return first
}

// enforceAge deletes segments that become too old, also while nothing is written.
func (s *Manager) enforceAge() {
	defer s.running.Done()
	for s.rest(nil, min(max(s.to.Segment.Keep.Age/64, time.Second), time.Minute)) {
		s.prune()
	}
}

// removals counts deleted segments by the setting that required it.
type removals struct{ keep, keepFree atomic.Uint64 }

func (r *removals) status() map[string]uint64 {
	return map[string]uint64{"keep": r.keep.Load(), "keep_free": r.keepFree.Load()}
}

// removeSegment deletes a complete segment and its index, and reports whether it could.
func (s *Manager) removeSegment(path string, count *atomic.Uint64) bool {
	if err := s.names.remove(path); err != nil {
		s.log.Warn("could not remove an old segment", "err", err)
		return false
	}
	count.Add(1)
	s.names.removeIndex(path, s.log)
	return true
}

// logRemoval logs what a segment of an earlier run has before it is deleted. Segments of this run come and go all the
// time.
func (s *Manager) logRemoval(path string, number int, setting, value string) {
	if number >= s.firstNumber {
		return
	}
	f, err := s.names.open(path, os.O_RDONLY)
	if err != nil {
		s.log.Info("an old segment is removed", "path", path, "setting", setting, "value", value)
		return
	}
	defer f.Close()
	var size int64
	if info, err := f.Stat(); err == nil {
		size = info.Size()
	}
	packets, _, _ := pcapng.Count(f, size) // informative only, as the times
	times, _ := pcapng.ReadTimes(f, size)
	s.log.Info("an old segment is removed", "path", path, "setting", setting, "value", value,
		"packets", packets, "bytes", size, "first", utc(times.First), "last", utc(times.Last))
}

// utc formats nanoseconds since 1970; unknown for zero.
func utc(ns uint64) string {
	if ns == 0 {
		return "unknown"
	}
	return time.Unix(0, int64(ns)).UTC().Format(time.RFC3339)
}

// removeEmpty deletes the file of a segment that got no packets, and reports whether it did. A log's manifest names its
// segments, so they stay. Files with names that the user chose stay, too.
func (s *Manager) removeEmpty(f *os.File, path string) (bool, error) {
	if s.manifest != nil || s.to.Exact || s.to.Opened != "" {
		return false, nil
	}
	var open unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &open); err != nil {
		return false, err
	}
	now, err := s.names.dir.Stat(filepath.Base(path))
	if err != nil || now.Ino != open.Ino || now.Dev != open.Dev { // somebody has moved it
		return false, nil
	}
	if err := s.names.remove(path); err != nil {
		return false, err
	}
	s.names.removeIndex(path, s.log)
	return true, nil
}
