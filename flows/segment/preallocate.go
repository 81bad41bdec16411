package segment

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// endless is the size of a segment that grows.
	unboundedSize = 1 << 60
	// ahead is how much of a growing file is allocated before it is written: a
	// write behind the end of a file is slower than one into allocated space.
	preallocation = 256 << 20
)

// replaceExact looks at what is where the one capture file goes, which that replaces, as tcpdump does, once it is made. Only a
// regular file is replaced that nobody writes.
func (s *Manager) replaceExact() error {
	if !s.to.Exact || s.to.Opened != "" {
		return nil
	}
	if err := s.names.dir.Regular(filepath.Base(s.to.File)); err != nil {
		return err
	}
	if f, err := s.names.open(s.to.File, os.O_RDONLY); err == nil {
		defer f.Close()
		if err := lockFile(int(f.Fd())); err != nil {
			return fmt.Errorf("replace %s: %w", s.to.File, err)
		}
	}
	return s.names.removeStale(s.to.File)
}

// prepared is the path of the one capture file until it is made.
func (s *Manager) exactPrepared() string {
	dir, base := filepath.Split(s.to.File)
	return filepath.Join(dir, fmt.Sprintf(".%s-%d.next", base, os.Getpid()))
}

// grow allocates space ahead of a growing segment until the store closes, and lets it be written up to there where room is to be
// kept. Else, where there is none left, writes go on to the end of the disk.
func (s *Manager) preallocate(seg *Segment) {
	defer s.running.Done()
	f, err := seg.openToPreallocate()
	if err != nil {
		s.setBlocked(err)
		return
	}
	if f == nil {
		return
	}
	defer f.Close()
	allocated := uint64(0)
	for s.preallocateTo(seg, f, &allocated) {
		select {
		case <-time.After(20 * time.Millisecond):
		case <-s.stop:
			return
		}
	}
}

// toGrow opens the segment's file once more, or gives nil where it grows no more: it may be closed by then.
func (s *Segment) openToPreallocate() (*os.File, error) {
	s.growing.Lock()
	defer s.growing.Unlock()
	if s.sealed {
		return nil, nil
	}
	return s.reopenBuffered()
}

// growTo allocates more if it is time to, and reports whether to go on.
func (s *Manager) preallocateTo(seg *Segment, f *os.File, allocated *uint64) bool {
	seg.growing.Lock()
	defer seg.growing.Unlock()
	if seg.sealed {
		return false
	}
	if seg.Reached.Load()+preallocation/2 <= *allocated {
		return true
	}
	more := uint64(preallocation)
	if s.space.keep != 0 {
		if more = s.nextStep(); more == 0 {
			return true
		}
	}
	if err := unix.Fallocate(int(f.Fd()), 0, int64(*allocated), int64(more)); err != nil {
		return s.space.keep != 0 && s.setNoStep(err)
	}
	*allocated += more
	if s.space.keep != 0 {
		seg.allowed.Store(*allocated)
	}
	return true
}

// leastStep is the least by which a growing file is extended above the floor.
const minStep = 1 << 20

// step is how much a file may grow by; 0: there is no room for now.
func (s *Manager) nextStep() uint64 {
	defer s.space.lock()()
	err := s.reclaim(minStep)
	s.setBlocked(err)
	if err != nil {
		return 0
	}
	above, err := s.space.measure()
	if err != nil || above < minStep+metadataSlack {
		return 0
	}
	return min(preallocation, uint64(above-metadataSlack)&^(minStep-1))
}

// noStep says why the file could not grow by what was free, and to try again.
func (s *Manager) setNoStep(err error) bool {
	s.setBlocked(fmt.Errorf("keep_free: reserve space: %w (a file system that can, such as ext4 or XFS, is needed)", err))
	return true
}

// stopGrowing waits until the file is not being grown, for good.
func (s *Segment) stopPreallocation() {
	s.growing.Lock()
	defer s.growing.Unlock()
	s.sealed = true
}
