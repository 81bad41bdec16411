package segment

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/pcapng"
	"github.com/unifiedd/unifiedd/nvme"
)

// maxOpen is how many segments of a flow are with the disk at once: the current one and those that are full and not durable yet.
const MaxOpen = 16

// segment is one capture file, or one slot of a ring on a device. The worker has it from taking until retiring it;
// before and after, the store's goroutines have it.
type Segment struct {
	preparedPath string // as prepared
	Number       int
	Target       *nvme.Target
	id           pcapng.SegmentID
	align        uint32
	size         uint64
	softLimit    uint64 // bytes beyond which no second batch goes; 0: size
	Base         uint64 // where it begins in the target
	firstPacket  uint64 // number of the first packet of the run, on a ring

	Index     uint32 // of the target in the flow's queue
	Before    uint64 // packets of the flow in front of the segment's first
	Next      uint64 // offset of the next batch, from the base
	Sequence  uint64 // of the last batch
	Opened    time.Time
	Reached   atomic.Uint64          // next, for who grows the file
	allowed   atomic.Uint64          // how far it may be written, by who grows it
	growing   sync.Mutex             // held while the file is grown; guards finished
	sealed    bool                   // the file grows no more
	Last      Position               // the flow's last batch, once no more will come here
	Damaged   bool                   // some of its batches did not reach the disk
	finalPath atomic.Pointer[string] // its path once it is in use; nil: not renamed yet
}

// name is the path it can be found at.
func (s *Segment) Path() string {
	if p := s.finalPath.Load(); p != nil {
		return *p
	}
	return s.preparedPath
}

// named reports whether its name is final and durable.
func (s *Segment) NameDurable() bool { return s.finalPath.Load() != nil }

// takes reports whether a batch of n bytes fits, and the mark that ends the
// segment behind it.
func (s *Segment) Fits(n uint64) bool {
	limit := s.size
	if s.Unbounded() {
		limit = s.allowed.Load()
	} else if s.softLimit > 0 && s.Sequence > 0 {
		limit = s.softLimit
	}
	return s.Next+n+uint64(s.align) <= limit
}

// grows reports whether it has no size of its own.
func (s *Segment) Unbounded() bool { return s.size == unboundedSize }

// safe reports whether all its batches are durable and its name is.
func (s *Segment) Durable(durable Position) bool {
	return durable.Number >= s.Last.Number && s.NameDurable()
}

// batch describes the next batch, which packets of the flow are in front of.
func (s *Segment) Batch(durable, packets uint64) pcapng.Batch {
	return pcapng.Batch{
		Segment: s.id, Align: s.align, Sequence: s.Sequence + 1,
		Offset: s.Next, Durable: durable, FirstPacket: s.firstPacket + packets - s.Before,
	}
}

// newSegmentID draws a random id.
func newSegmentID() (id pcapng.SegmentID, err error) {
	if _, err = rand.Read(id[:]); err != nil {
		err = fmt.Errorf("draw a segment id: %w", err)
	}
	return id, err
}

// mark is a place in a flow's output: behind a batch.
type Position struct {
	Number  uint64   // of the batch, 1 for the flow's first
	Packets uint64   // packets of the flow up to here
	Bytes   uint64   // their bytes
	Newest  uint64   // time of the latest of them, in nanoseconds since the epoch
	Segment *Segment // the file it lies in
	End     uint64   // offset in it behind the batch
}

func (m Position) Status() status.Position {
	at := status.Position{Packets: m.Packets, Bytes: m.Bytes, Offset: m.End}
	if m.Segment != nil {
		at.Offset += m.Segment.Base
		at.File = m.Segment.Path()
	}
	return at
}

// ErrInUse says that another process writes a file: its capture must neither be
// mended nor replaced.
var ErrInUse = errors.New("another process writes it")

// letGo is how long the kernel may take to close the files of a process that was
// killed: those of an io_uring outlive it a while. Tests shorten it.
var lockTimeout = 5 * time.Second

// hold locks an open file for as long as it is open, so that no other unifiedd
// mends or replaces it meanwhile. A file system without locks has none.
func lockFile(fd int) error {
	for end := time.Now().Add(lockTimeout); ; time.Sleep(10 * time.Millisecond) {
		err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case errors.Is(err, unix.EINTR):
		case !errors.Is(err, unix.EWOULDBLOCK):
			return nil
		case time.Now().After(end):
			return fmt.Errorf("%w (stop it, or choose another place)", ErrInUse)
		}
	}
}

// reopen opens the file of a segment once more, without direct I/O.
func (s *Segment) reopenBuffered() (*os.File, error) { return reopenBuffered(s.Target) }

// reopen opens a target once more, without direct I/O; instead of an NVMe node, its
// block device. It goes by what is open and not by the name, under which there may be
// another file by now.
func reopenBuffered(t *nvme.Target) (*os.File, error) {
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", t.BlockFD()), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s again: %w", t.Path(), err)
	}
	return os.NewFile(uintptr(fd), t.Path()), nil
}

// writeHead writes what a segment begins with and waits until it is durable.
func (s *Segment) writeHead(head []byte) error {
	f, err := s.reopenBuffered()
	if err != nil {
		return err
	}
	_, err = f.WriteAt(head, int64(s.Base))
	return errors.Join(err, f.Sync(), f.Close())
}

// removed reports whether a file has no name any more.
func isRemoved(f *os.File) bool {
	var st unix.Stat_t
	return unix.Fstat(int(f.Fd()), &st) == nil && st.Nlink == 0
}
