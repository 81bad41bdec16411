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

// MaxOpen is how many segments of a flow are open for writing at once: the current one and full
// ones that are not durable yet.
const MaxOpen = 16

// Segment is one capture file, or one slot of a ring. The worker owns it from Acquire to Retire.
// The manager owns it before and after. The worker may change the exported fields.
type Segment struct {
	preparedPath string // before it has its final name
	Number       int
	Target       *nvme.Target
	id           pcapng.SegmentID
	align        uint32
	size         uint64
	softLimit    uint64 // only the first batch may end beyond it; 0: size
	Base         uint64 // offset in the target
	firstPacket  uint64 // number of the run's first packet, in a ring

	Index     uint32 // of the target in the flow's queue
	Before    uint64 // packets of the flow before the segment's first
	Next      uint64 // offset of the next batch from Base
	Sequence  uint64 // of the last batch
	Opened    time.Time
	hasBatch  bool                   // on the disk; the worker's
	reached   atomic.Uint64          // copy of Next for preallocate
	low       atomic.Uint64          // offset from which on preallocate extends the file
	news      chan struct{}          // holds one value when preallocate has something to do; nil: nothing is preallocated
	allowed   atomic.Uint64          // offset up to which preallocate lets the worker write
	growing   sync.Mutex             // guards sealed; held while the file is extended
	sealed    bool                   // the file may not be extended
	Last      Position               // end of the segment's last batch, once the segment is full
	Damaged   bool                   // batches are missing: recover instead of sealing
	finalPath atomic.Pointer[string] // nil: not renamed yet
}

// Path returns the segment's current path. Any goroutine may call it.
func (s *Segment) Path() string {
	if p := s.finalPath.Load(); p != nil {
		return *p
	}
	return s.preparedPath
}

// NameDurable reports whether the segment has its final name, and the name is durable. Any
// goroutine may call it.
func (s *Segment) NameDurable() bool { return s.finalPath.Load() != nil }

// Fits reports whether a batch of n bytes fits, with the end marker after it.
func (s *Segment) Fits(n uint64) bool {
	limit := s.size
	if s.Unbounded() {
		limit = s.allowed.Load()
	} else if s.softLimit > 0 && s.Sequence > 0 {
		limit = s.softLimit
	}
	return s.Next+n+uint64(s.align) <= limit
}

// Advance says that Next has changed. It wakes preallocate when the file is to be extended.
func (s *Segment) Advance() {
	s.reached.Store(s.Next)
	if s.Unbounded() && s.Next > s.low.Load() {
		s.tell()
	}
}

// tell wakes preallocate.
func (s *Segment) tell() {
	select {
	case s.news <- struct{}{}:
	default:
	}
}

// Unbounded reports whether the segment has no fixed size.
func (s *Segment) Unbounded() bool { return s.size == unboundedSize }

// Durable reports whether all batches and the name are durable. durable is the flow's durable
// position.
func (s *Segment) Durable(durable Position) bool {
	return durable.Number >= s.Last.Number && s.NameDurable()
}

// Batch describes the next batch. durable is the offset up to which the segment is durable, and
// packets is the number of the flow's packets before the batch.
func (s *Segment) Batch(durable, packets uint64) pcapng.Batch {
	return pcapng.Batch{
		Segment: s.id, Align: s.align, Sequence: s.Sequence + 1,
		Offset: s.Next, Durable: durable, FirstPacket: s.firstPacket + packets - s.Before,
	}
}

// newSegmentID draws a random ID.
func newSegmentID() (id pcapng.SegmentID, err error) {
	if _, err = rand.Read(id[:]); err != nil {
		err = fmt.Errorf("draw a segment id: %w", err)
	}
	return id, err
}

// Position is a position in a flow's output: the end of a batch.
type Position struct {
	Number  uint64   // of the batch; the flow's first is 1
	Packets uint64   // of the flow up to here
	Bytes   uint64   // of those packets
	Newest  uint64   // time of the newest of them, in nanoseconds since 1970
	Segment *Segment // contains the batch; nil: a stream
	End     uint64   // offset of the batch's end in the segment
}

// Status converts the position for the flow's status.
func (m Position) Status() status.Position {
	at := status.Position{Packets: m.Packets, Bytes: m.Bytes, Offset: m.End}
	if m.Segment != nil {
		at.Offset += m.Segment.Base
		at.File = m.Segment.Path()
	}
	return at
}

// errInUse is matched when another process writes a file. The manager neither recovers nor replaces
// such a file.
var errInUse = errors.New("another process writes it")

// lockTimeout is how long the kernel may take to close the files of a killed process. Files of an
// io_uring stay open for a while. Tests shorten it.
var lockTimeout = 5 * time.Second

// lockFile locks an open file until it is closed, so that no other daemon recovers or replaces it.
// On file systems without locks there is no protection.
func lockFile(fd int) error {
	for end := time.Now().Add(lockTimeout); ; time.Sleep(10 * time.Millisecond) {
		err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case errors.Is(err, unix.EINTR):
		case !errors.Is(err, unix.EWOULDBLOCK):
			return nil
		case time.Now().After(end):
			return fmt.Errorf("%w (stop it, or choose another place)", errInUse)
		}
	}
}

// reopenBuffered opens the segment's file again without direct I/O.
func (s *Segment) reopenBuffered() (*os.File, error) { return reopenBuffered(s.Target) }

// reopenBuffered opens a target again without direct I/O. For an NVMe character device it opens the
// block device. It uses the open descriptor, because the path may name another file now.
func reopenBuffered(t *nvme.Target) (*os.File, error) {
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", t.BlockFD()), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s again: %w", t.Path(), err)
	}
	return os.NewFile(uintptr(fd), t.Path()), nil
}

// writeHead writes the head of a segment durably.
func (s *Segment) writeHead(head []byte) error {
	f, err := s.reopenBuffered()
	if err != nil {
		return err
	}
	_, err = f.WriteAt(head, int64(s.Base))
	return errors.Join(err, f.Sync(), f.Close())
}

// isRemoved reports whether a file has no name.
func isRemoved(f *os.File) bool {
	var st unix.Stat_t
	return unix.Fstat(int(f.Fd()), &st) == nil && st.Nlink == 0
}
