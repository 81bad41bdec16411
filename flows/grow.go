package flows

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// endless is the size of a segment that grows.
	endless = 1 << 60
	// ahead is how much of a growing file is allocated before it is written: a
	// write behind the end of a file is slower than one into allocated space.
	ahead = 256 << 20
)

// replaceExact looks at what is where the one capture file goes, which that replaces, as tcpdump does, once it is made. Only a
// regular file is replaced that nobody writes.
func (s *store) replaceExact() error {
	if !s.to.Exact || s.to.Opened != "" {
		return nil
	}
	if err := s.names.dir.Regular(filepath.Base(s.to.File)); err != nil {
		return err
	}
	if f, err := s.names.open(s.to.File, os.O_RDONLY); err == nil {
		defer f.Close()
		if err := hold(int(f.Fd())); err != nil {
			return fmt.Errorf("replace %s: %w", s.to.File, err)
		}
	}
	return s.names.removeLeft(s.to.File)
}

// prepared is the path of the one capture file until it is made.
func (s *store) prepared() string {
	dir, base := filepath.Split(s.to.File)
	return filepath.Join(dir, fmt.Sprintf(".%s-%d.next", base, os.Getpid()))
}

// grow allocates space ahead of a growing segment until the store closes, and lets it be written up to there where room is to be
// kept. Else, where there is none left, writes go on to the end of the disk.
func (s *store) grow(seg *segment) {
	defer s.running.Done()
	f, err := seg.toGrow()
	if err != nil {
		s.setTrouble(err)
		return
	}
	if f == nil {
		return
	}
	defer f.Close()
	allocated := uint64(0)
	for s.growTo(seg, f, &allocated) {
		select {
		case <-time.After(20 * time.Millisecond):
		case <-s.stop:
			return
		}
	}
}

// toGrow opens the segment's file once more, or gives nil where it grows no more: it may be closed by then.
func (s *segment) toGrow() (*os.File, error) {
	s.growing.Lock()
	defer s.growing.Unlock()
	if s.finished {
		return nil, nil
	}
	return s.reopen()
}

// growTo allocates more if it is time to, and reports whether to go on.
func (s *store) growTo(seg *segment, f *os.File, allocated *uint64) bool {
	seg.growing.Lock()
	defer seg.growing.Unlock()
	if seg.finished {
		return false
	}
	if seg.reached.Load()+ahead/2 <= *allocated {
		return true
	}
	more := uint64(ahead)
	if s.floor.keep != 0 {
		if more = s.step(); more == 0 {
			return true
		}
	}
	if err := unix.Fallocate(int(f.Fd()), 0, int64(*allocated), int64(more)); err != nil {
		return s.floor.keep != 0 && s.noStep(err)
	}
	*allocated += more
	if s.floor.keep != 0 {
		seg.allowed.Store(*allocated)
	}
	return true
}

// leastStep is the least by which a growing file is extended above the floor.
const leastStep = 1 << 20

// step is how much a file may grow by; 0: there is no room for now.
func (s *store) step() uint64 {
	defer s.floor.lock()()
	err := s.makeRoom(leastStep)
	s.setTrouble(err)
	if err != nil {
		return 0
	}
	above, err := s.floor.look()
	if err != nil || above < leastStep+besides {
		return 0
	}
	return min(ahead, uint64(above-besides)&^(leastStep-1))
}

// noStep says why the file could not grow by what was free, and to try again.
func (s *store) noStep(err error) bool {
	s.setTrouble(fmt.Errorf("keep_free: reserve space: %w (a file system that can, such as ext4 or XFS, is needed)", err))
	return true
}

// stopGrowing waits until the file is not being grown, for good.
func (s *segment) stopGrowing() {
	s.growing.Lock()
	defer s.growing.Unlock()
	s.finished = true
}
