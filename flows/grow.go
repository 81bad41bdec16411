package flows

import (
	"errors"
	"fmt"
	"os"
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

// replaceExact removes what is where the one capture file goes, as tcpdump does.
// Only a regular file is removed.
func (s *store) replaceExact() error {
	if !s.to.Exact {
		return nil
	}
	info, err := os.Lstat(s.to.File)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is there already and not a regular file: choose another name", s.to.File)
	}
	if f, err := os.Open(s.to.File); err == nil {
		defer f.Close()
		if err := hold(int(f.Fd())); err != nil {
			return fmt.Errorf("replace %s: %w", s.to.File, err)
		}
	}
	return os.Remove(s.to.File)
}

// grow allocates space ahead of a growing segment until the store closes. Where
// there is none left, writes go on to the end of the disk.
func (s *store) grow(seg *segment) {
	defer s.running.Done()
	f, err := seg.reopen()
	if err != nil {
		s.setTrouble(err)
		return
	}
	defer f.Close()
	allocated := uint64(0)
	for seg.growTo(f, &allocated) {
		select {
		case <-time.After(20 * time.Millisecond):
		case <-s.stop:
			return
		}
	}
}

// growTo allocates more if it is time to, and reports whether to go on.
func (s *segment) growTo(f *os.File, allocated *uint64) bool {
	s.growing.Lock()
	defer s.growing.Unlock()
	if s.finished {
		return false
	}
	if s.reached.Load()+ahead/2 <= *allocated {
		return true
	}
	if unix.Fallocate(int(f.Fd()), 0, int64(*allocated), ahead) != nil {
		return false
	}
	*allocated += ahead
	return true
}

// stopGrowing waits until the file is not being grown, for good.
func (s *segment) stopGrowing() {
	s.growing.Lock()
	defer s.growing.Unlock()
	s.finished = true
}
