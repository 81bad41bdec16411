package target

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/addrlimit"
	"github.com/unifiedd/unifiedd/nvme"
	"github.com/unifiedd/unifiedd/nvme/fabrics"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/ep"
	"github.com/unifiedd/unifiedd/umem"
)

// Server serves subsystems to hosts.
type Server struct {
	config Config
	region *umem.Region
	moving *umem.Holder // frames that the RDMA device has, or may have

	queue      *nvme.Queue
	nodes      bool // it takes NVMe nodes
	disks      []*disk
	subsystems []*fabrics.Subsystem
	generation uint64 // of what is in the discovery log
	hosts      []*host
	lastID     uint16 // of a controller

	sent, came ep.Completions
	commands   *ep.ControlBuffers // of capsules, by slot
	responses  *ep.ControlBuffers // by operation
	capsules   []umem.Frame       // data of capsules, by slot; none where capsules have no data
	pools      [2]bufferPool      // small and large

	sessions   []session
	unproven   *addrlimit.Set[*session] // those whose hosts have proven nothing
	operations []operation              // of all sessions, in turn
	turn       int                      // the session that gets a buffer next
	waiting    int                      // commands that wait for a buffer, of all sessions
	awaiting   int                      // operations that go on when the RDMA device is done
	slept      bool                     // the round before had nothing to do
	dirty      []*session
	out        outgoing
	later      []int32 // operations whose ranges the disk's queue has no room for
	moves      int     // places in the disks' queue that are taken, of reads and writes, and of ranges
	ranges     int
	inLine     int  // operations that wait for their disk's share
	emptied    bool // a session has no buffer any more that had one, so one of its own in a line may go on
	ready      []umem.Frame
	flushed    [16]nvme.FlushResult
	now        int64 // of this round, in nanoseconds
	looked     int64 // when hosts were looked at last

	count  counters
	closed bool
}

// disk is a namespace with its place in the disk queue.
type disk struct {
	*fabrics.Namespace
	target   uint32
	source   *nvme.Target
	users    int    // operations that are about it
	held     [2]int // buffers of each buffer pool that they have until the disk is done with them
	moving   int    // of them, that have a place in the disks' queue, and ranges those whose flush, discard or zeroing does
	ranges   int
	waiting  waitQueue // of them, that wait for buffers, and unplaced for a place
	unplaced waitQueue
	gone     bool   // it is no namespace any more
	released func() // tells its owner that it is not in use any more; nil: nobody wants to know
	count    diskCounters
}

// Open takes what the server needs, and serves nobody until Serve is called. It may be called on any thread.
func Open(c Config) (*Server, error) {
	s := &Server{config: c}
	if err := s.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("open NVMe target %s: %w", c.Name, err), s.Close())
	}
	return s, nil
}

func (s *Server) open() error {
	c := &s.config
	if err := c.setDefaults(); err != nil {
		return err
	}
	if err := c.check(); err != nil {
		return err
	}
	s.region = c.Endpoint.Region
	for _, step := range []func() error{s.takeFrames, s.openDisks, s.openSessions, s.openQueues} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// takeFrames takes all frames and extents.
func (s *Server) takeFrames() (err error) {
	c := &s.config
	if s.moving, err = c.Worker.Book().NewHolder(umem.OwnerRDMA, "NVMe target "+c.Name); err != nil {
		return err
	}
	slots := c.Sessions * c.Depth
	if s.commands, err = ep.NewControlBuffers(s.moving, c.Endpoint.Memory, slots, fabrics.CommandLen); err != nil {
		return err
	}
	if s.responses, err = ep.NewControlBuffers(s.moving, c.Endpoint.Memory, 2*slots, fabrics.CompletionLen); err != nil {
		return err
	}
	if c.Capsule > 0 {
		if s.capsules, err = take(s.moving.Take, slots, "frames"); err != nil {
			return err
		}
	}
	small, err := take(c.Worker.Take, c.Small, "frames")
	s.pools[0] = bufferPool{size: uint64(s.region.FrameSize()), free: small, held: make([]int, c.Sessions)}
	if err != nil {
		return err
	}
	large, err := take(c.Worker.TakeExtents, c.Large, "extents")
	s.pools[1] = bufferPool{size: uint64(transfer(s.region.ExtentSize())), free: large, held: make([]int, c.Sessions)}
	return err
}

// openSessions makes room for hosts' queues, and all that is done for them.
func (s *Server) openSessions() error {
	c := &s.config
	s.operations = make([]operation, 2*c.Sessions*c.Depth)
	s.sessions = make([]session, c.Sessions)
	s.unproven = addrlimit.New[*session](Unproven(c.Sessions))
	for i := range s.sessions {
		s.sessions[i].init(s, i)
	}
	s.dirty = make([]*session, 0, c.Sessions)
	s.ready, s.later = make([]umem.Frame, 64), make([]int32, 0, len(s.operations))
	s.out.make(len(s.operations))
	return nil
}

// sends is how many work requests of a session may be posted: each of its operations has a READ, or a WRITE and a SEND.
func (s *Server) sends() int { return 4 * s.config.Depth }

func (s *Server) openQueues() (err error) {
	c := &s.config
	for _, q := range []struct {
		at    *ep.Completions
		depth int
	}{{&s.sent, c.Sessions * s.sends()}, {&s.came, c.Sessions * c.Depth}} {
		if most := c.Endpoint.Device.Capabilities().MaxCompletions; most > 0 && q.depth > most {
			return fmt.Errorf("%s has at most %d completions in a queue, and %d seats of depth %d need %d: have fewer seats, or less deep ones", c.Endpoint.Device.Name(), most, c.Sessions, c.Depth, q.depth)
		}
		if q.at.Queue, err = c.Endpoint.Device.NewCompletionQueue(rdma.CompletionQueueConfig{Depth: q.depth, Events: c.Events}); err != nil {
			return err
		}
	}
	return nil
}

// Poll does what there is to do: it takes commands, moves data, has the disks read and write, and answers. more says that it did something, so that there
// may be more to do at once. An error is of the disks' queue or the device, and the end of the server: it is to be closed.
func (s *Server) Poll(now time.Time) (more bool, err error) {
	if s.closed {
		return false, fmt.Errorf("NVMe target %s: %w", s.config.Name, unix.EBADF)
	}
	s.now = now.UnixNano()
	n, err := s.takeSent()
	came, wrong := s.takeCapsules()
	n += came + s.takeDone()
	s.retry()
	n += s.begin()
	s.look()
	s.post()
	s.submit()
	err = errors.Join(err, wrong, s.queue.Kick())
	more = n > 0
	if !more && s.config.Events && err == nil {
		more, err = s.arm(s.slept)
	}
	s.slept = !more
	if err != nil {
		return false, fmt.Errorf("NVMe target %s: %w", s.config.Name, err)
	}
	return more, nil
}

// FDs appends what polls readable when Poll has something to do, with Config.Events. Poll is to be called ten times a second besides.
func (s *Server) FDs(dst []unix.PollFd) []unix.PollFd {
	if s.closed || !s.config.Events {
		return dst
	}
	for _, fd := range []int{s.sent.Queue.FD(), s.came.Queue.FD(), s.queue.FD()} {
		dst = append(dst, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
	return dst
}

// arm has both queues tell of their next completion, and reports whether one did not before: then Poll is to be called again. That a host has what it was sent
// nobody need be woken for, unless something waits for it: it is seen in the next round.
func (s *Server) arm(woken bool) (anew bool, err error) {
	sent, err := s.sent.Arm(s.pressed(), woken)
	if err != nil {
		return false, err
	}
	came, err := s.came.Arm(true, woken)
	return sent || came, err
}

// pressed reports whether something waits for the RDMA device: data of a host's, a buffer, a queue that is to end, or an operation for a command that came.
func (s *Server) pressed() bool {
	if s.awaiting > 0 || s.waiting > 0 || s.inLine > 0 {
		return true
	}
	for i := range s.sessions {
		if p := &s.sessions[i]; p.state == sessionOpen && p.arrived.len() > 0 {
			return true
		}
	}
	return false
}

// Close waits for the disks as nvme.Queue.Close does, and gives every frame to the pool. Serve has returned before. It is called on the server's thread, or once
// that has ended. After an error it may be called again.
func (s *Server) Close() error { return s.close((*nvme.Queue).Close) }

// CloseWithin is Close that waits for the disks no longer than limit, for a thread that has other things to do and calls it again while the
// error is a nvme.StuckError.
func (s *Server) CloseWithin(limit time.Duration) error {
	return s.close(func(q *nvme.Queue) error { return q.CloseWithin(limit) })
}

func (s *Server) close(wait func(*nvme.Queue) error) error {
	s.closed = true
	var errs []error
	for i := range s.sessions {
		if p := &s.sessions[i]; p.state != sessionFree && p.state != sessionDraining {
			errs = append(errs, s.leave(p))
		}
	}
	if s.queue != nil {
		errs = append(errs, wait(s.queue))
	}
	errs = append(errs, s.sent.Close(), s.came.Close())
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close NVMe target %s: %w", s.config.Name, err)
	}
	s.giveBack()
	return nil
}

// giveBack gives all frames to the pool, which no device has any more.
func (s *Server) giveBack() {
	if s.moving == nil {
		return
	}
	s.config.Worker.Give(s.mine())
	s.moving.Close()
	s.moving = nil
}

// mine are the frames of the server's that are the worker's.
func (s *Server) mine() (frames []umem.Frame) {
	for i := range s.operations {
		for _, b := range s.operations[i].buffers {
			if b.where == atWorker {
				frames = append(frames, b.frame)
			}
		}
	}
	return append(append(frames, s.pools[0].free...), s.pools[1].free...)
}

// take takes frames or extents of the pool. Those it took are the caller's also where they were too few.
func take(from func([]umem.Frame) int, n int, kind string) ([]umem.Frame, error) {
	frames := make([]umem.Frame, n)
	if got := from(frames); got < n {
		return frames[:got], fmt.Errorf("the pool has %d of %d %s: open a larger region (region.size, region.extents), or serve fewer queues at once", got, n, kind)
	}
	return frames, nil
}
