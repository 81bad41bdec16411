package segment

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// unboundedSize is the size of a segment without a fixed size.
	unboundedSize = 1 << 60
	// preallocation is the space that is allocated ahead in an unbounded file. Writes into allocated
	// space are faster than writes that extend the file.
	preallocation = 256 << 20
)

// replaceExact checks the file that the capture will replace, as tcpdump does. It must be a regular
// file that no other process writes.
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

// exactPrepared returns the path of the single capture file before it has its final name.
func (s *Manager) exactPrepared() string {
	dir, base := filepath.Split(s.to.File)
	tail := fmt.Sprintf("-%d.next", os.Getpid())
	return filepath.Join(dir, "."+strings.ToValidUTF8(base[:min(len(base), unix.NAME_MAX-1-len(tail))], "")+tail)
}

// preallocate allocates space of an unbounded segment before the worker needs it, until the segment
// is sealed or the manager closes. With a free-space reserve the worker may write only into
// allocated space. Without one it writes until the disk is full.
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
	for allocated := uint64(0); s.preallocateTo(seg, f, &allocated); {
		most := scarceInterval
		if seg.reached.Load()+preallocation/2 <= allocated {
			most = 0
		}
		if !s.rest(seg.news, most) {
			return
		}
	}
}

// scarceInterval is the time between attempts to extend a file for which there is little space.
const scarceInterval = 20 * time.Millisecond

// openToPreallocate opens the segment's file again. It returns nil if the segment is sealed
// already.
func (s *Segment) openToPreallocate() (*os.File, error) {
	s.growing.Lock()
	defer s.growing.Unlock()
	if s.sealed {
		return nil, nil
	}
	return s.reopenBuffered()
}

// preallocateTo allocates more when the worker has used half, and reports whether to continue.
func (s *Manager) preallocateTo(seg *Segment, f *os.File, allocated *uint64) bool {
	seg.growing.Lock()
	defer seg.growing.Unlock()
	if seg.sealed {
		return false
	}
	if seg.reached.Load()+preallocation/2 <= *allocated {
		return true
	}
	defer func() { seg.low.Store(*allocated - min(*allocated, preallocation/2)) }()
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

// minStep is the least extension of a file above the reserve.
const minStep = 1 << 20

// nextStep returns by how much a file may be extended now; 0: there is no space.
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

// setNoStep publishes why the file could not be extended. The caller tries again.
func (s *Manager) setNoStep(err error) bool {
	s.setBlocked(fmt.Errorf("keep_free: reserve space: %w (a file system that can, such as ext4 or XFS, is needed)", err))
	return true
}

// stopPreallocation waits until no extension of the file is in progress, and prevents further ones.
func (s *Segment) stopPreallocation() {
	s.growing.Lock()
	defer s.growing.Unlock()
	s.sealed = true
	s.tell()
}
