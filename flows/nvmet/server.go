package nvmet

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
	moving *umem.Holder // frames that the RDMA device may use

	queue      *nvme.Queue
	nodes      bool // the queue takes NVMe character devices
	disks      []*disk
	subsystems []*fabrics.Subsystem
	generation uint64 // of the discovery log
	hosts      []*host
	lastID     uint16 // the last controller ID

	sent, came ep.Completions
	commands   *ep.ControlBuffers // of capsules, by slot
	responses  *ep.ControlBuffers // by operation
	capsules   []umem.Frame       // data of capsules, by slot; empty if capsules have no data
	pools      [2]bufferPool      // small and large

	sessions   []session
	unproven   *addrlimit.Set[*session] // see unproven.go
	operations []operation              // of all sessions, one after the other
	turn       int                      // the session that gets the next buffer
	waiting    int                      // commands of all sessions that wait for a buffer
	awaiting   int                      // operations that wait for the RDMA device
	slept      bool                     // the last round had nothing to do
	dirty      []*session
	out        outgoing
	later      []int32 // operations whose ranges wait for room in the disks' queue
	moves      int     // places of the disks' queue in use
	ranges     int
	inLine     int  // operations in the waitQueues of disks
	emptied    bool // a session has returned its last buffer, so its first operation in a waitQueue may continue
	ready      []umem.Frame
	flushed    [16]nvme.FlushResult
	now        int64 // of this round, in nanoseconds
	looked     int64 // time of the last check of the hosts

	reserving reserving

	count  counters
	closed bool
}

// disk is a namespace whose target is in the disks' queue.
type disk struct {
	*fabrics.Namespace
	place    place
	target   uint32
	source   *nvme.Target
	users    int    // operations that use it
	held     [2]int // buffers of each pool that count for the disk
	moving   int    // reads and writes in the disks' queue, and ranges the other commands
	ranges   int
	waiting  waitQueue // operations that wait for buffers, and unplaced for a place in the disks' queue
	unplaced waitQueue
	gone     bool   // its namespace was removed
	released func() // Namespace.Released
	count    diskCounters
}

// Open takes the resources of a server. The server accepts no host until Serve is called. Open may
// be called from any thread.
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
	for _, step := range []func() error{s.takeFrames, s.openReservations, s.openDisks, s.openSessions, s.openQueues} {
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

// openSessions allocates the sessions and their operations.
func (s *Server) openSessions() error {
	c := &s.config
	s.operations = make([]operation, 2*c.Sessions*c.Depth)
	s.sessions = make([]session, c.Sessions)
	s.unproven = addrlimit.New[*session](unproven(c.Sessions))
	for i := range s.sessions {
		s.sessions[i].init(s, i)
	}
	s.dirty = make([]*session, 0, c.Sessions)
	s.ready, s.later = make([]umem.Frame, 64), make([]int32, 0, len(s.operations))
	s.out.make(len(s.operations))
	return nil
}

// sends returns the number of work requests of a session that may be posted: each operation has a
// READ, or a WRITE and a SEND.
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

// Poll processes commands, RDMA completions and completions of the disks. more says that it did
// something, so there may be more to do at once. An error comes from the disks' queue or the
// device: the server cannot continue and must be closed.
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
	reserved, broken := s.tendReservations()
	n += reserved
	s.post()
	s.submit()
	err = errors.Join(err, wrong, broken, s.queue.Kick())
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

// obeyEvery is how often a server looks for changes of reservations by other servers, which wait for it.
const obeyEvery = 100 * time.Millisecond

// Deadline returns when to call Poll though no descriptor is readable: at idle unless there are hosts, whose silence
// counts, or reservations.
func (s *Server) Deadline(now, idle time.Time) time.Time {
	if s.reserving.keeper != nil {
		return now.Add(obeyEvery)
	}
	for i := range s.sessions {
		if s.sessions[i].state != sessionFree {
			return now.Add(lookEvery)
		}
	}
	return idle
}

// FDs appends the descriptors that poll readable when Poll has work, with Config.Events. Poll must
// also be called at the time of Deadline.
func (s *Server) FDs(dst []unix.PollFd) []unix.PollFd {
	if s.closed || !s.config.Events {
		return dst
	}
	for _, fd := range []int{s.sent.Queue.FD(), s.came.Queue.FD(), s.queue.FD()} {
		dst = append(dst, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
	return dst
}

// arm arms both completion queues. It reports whether one was not armed before: Poll must then be
// called again. It does not arm the queue of sends if nothing waits for it: the next round sees
// those completions anyway.
func (s *Server) arm(woken bool) (anew bool, err error) {
	sent, err := s.sent.Arm(s.pressed(), woken)
	if err != nil {
		return false, err
	}
	came, err := s.came.Arm(true, woken)
	return sent || came, err
}

// pressed reports whether something waits for the RDMA device: data of a host, a buffer, the end of
// a queue, or an operation for a received command.
func (s *Server) pressed() bool {
	if s.awaiting > 0 || s.waiting > 0 || s.inLine > 0 {
		return true
	}
	for i := range s.sessions {
		if p := &s.sessions[i]; p.state == sessionOpen && p.arrived.Len() > 0 {
			return true
		}
	}
	return false
}

// Close waits for the disks as nvme.Queue.Close does, and gives every frame back to the region.
// Serve must have returned before. Close is called on the server's thread, or after that thread has
// ended. After an error it may be called again.
func (s *Server) Close() error { return s.close((*nvme.Queue).Close, closeLimit) }

// CloseWithin is Close with a limit to the wait for the disks. It is for a thread with other work,
// which calls it again while the error is an nvme.StuckError.
func (s *Server) CloseWithin(limit time.Duration) error {
	return s.close(func(q *nvme.Queue) error { return q.CloseWithin(limit) }, limit)
}

func (s *Server) close(wait func(*nvme.Queue) error, limit time.Duration) error {
	s.closed = true
	var errs []error
	for i := range s.sessions {
		if p := &s.sessions[i]; p.state != sessionFree && p.state != sessionDraining {
			errs = append(errs, s.leave(p))
		}
	}
	var open error // what keeps the disks' queue open
	if s.queue != nil {
		open = wait(s.queue)
	}
	errs = append(errs, open, s.sent.Close(), s.came.Close(), s.leaveReservations(open, limit))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close NVMe target %s: %w", s.config.Name, err)
	}
	s.giveBack()
	return nil
}

// giveBack gives all frames back to the region. No device may use them.
func (s *Server) giveBack() {
	if s.moving == nil {
		return
	}
	s.config.Worker.Give(s.mine())
	s.moving.Close()
	s.moving = nil
}

// mine returns the server's frames that the worker holds.
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

// take takes frames or extents of the region. The caller owns the returned ones, even if they are
// too few.
func take(from func([]umem.Frame) int, n int, kind string) ([]umem.Frame, error) {
	frames := make([]umem.Frame, n)
	if got := from(frames); got < n {
		return frames[:got], fmt.Errorf("the pool has %d of %d %s: open a larger region (region.size, region.extents), or serve fewer queues at once", got, n, kind)
	}
	return frames, nil
}
