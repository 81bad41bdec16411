package blocks

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/nvme"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/ep"
	"github.com/unifiedd/unifiedd/umem"
)

// Server serves a target to clients.
type Server struct {
	config  Config
	plan    *plan
	region  *umem.Region
	cached  *umem.Holder // buffers that are kept and that nobody uses
	sending *umem.Holder // buffers that are written to clients, and cells
	queue   *nvme.Queue
	target  uint32
	sent    ep.Completions
	came    ep.Completions
	cells   *ep.ControlBuffers
	caches  [shelves]bufferCache

	sessions   []session
	operations []operation // of all sessions, in turn
	pieces     []piece     // of all operations, in turn
	perRequest int         // SGEs of a WRITE, at most
	turn       int         // the session that may begin a request next
	waiting    int         // requests that are not begun, of all sessions
	dirty      []*session  // that have something to be posted
	reads      []umem.Frame
	submitted  int // of reads, those from the front that the disk has
	links      int // reads that the last of them goes on from
	longest    int // reads in one, at most
	ready      [1]umem.Frame
	now        int64 // of this round, in nanoseconds

	count  counters
	closed bool
	mu     sync.Mutex // of who is in each session, and the counters of that client
}

// Open takes what the server needs, and serves nobody until Serve is called. It may be called on any thread.
func Open(c Config) (*Server, error) {
	s := &Server{config: c}
	if err := s.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("open block server %s: %w", c.Name, err), s.Close())
	}
	return s, nil
}

func (s *Server) open() (err error) {
	c := &s.config
	if err := errors.Join(c.complete(), c.setDefaults()); err != nil {
		return err
	}
	s.region = c.Endpoint.Region
	if s.plan, err = newPlan(*c, s.region); err != nil {
		return err
	}
	if err := s.openHolders(); err != nil {
		return err
	}
	if err := s.takeBuffers(); err != nil {
		return err
	}
	if err := s.openDisk(); err != nil {
		return err
	}
	if err := s.openSessions(); err != nil {
		return err
	}
	return s.openQueues()
}

func (s *Server) openHolders() (err error) {
	book := s.config.Worker.Book()
	if s.cached, err = book.NewHolder(umem.OwnerCache, "cache of block server "+s.config.Name); err != nil {
		return err
	}
	s.sending, err = book.NewHolder(umem.OwnerRDMA, "block server "+s.config.Name)
	return err
}

// takeBuffers takes all frames and extents.
func (s *Server) takeBuffers() (err error) {
	p, worker := s.plan, s.config.Worker
	if s.cells, err = ep.NewControlBuffers(s.sending, s.config.Endpoint.Memory, p.cells(), protocol.HeaderLen); err != nil {
		return err
	}
	for i, k := range []struct {
		name string
		size uint64
		take func([]umem.Frame) int
	}{{"frames", p.frame, worker.Take}, {"extents", p.extent, worker.TakeExtents}} {
		frames := make([]umem.Frame, p.caches[i].buffers)
		n := k.take(frames)
		cache := &s.caches[i]
		cache.size, cache.keep, cache.aligned, cache.share = k.size, p.keep, i == frameCache, newShare(p.caches[i], p.clients)
		cache.fill(frames[:n], worker)
		if n < len(frames) {
			return fmt.Errorf("the pool has %d of %d %s: open a larger region (region.size, region.extents), or serve fewer clients at once", n, len(frames), k.name)
		}
	}
	most := p.caches[frameCache].buffers + p.caches[extentCache].buffers
	s.reads = make([]umem.Frame, 0, 2*most)
	return nil
}

func (s *Server) openDisk() (err error) {
	t := s.config.Target
	frames := min(max(cap(s.reads), s.plan.depth), 1<<16)
	s.longest = min(s.plan.most, frames, 1024)
	s.queue, err = nvme.Open(nvme.Config{Worker: s.config.Worker, Name: "block server " + s.config.Name, Depth: s.plan.depth, Frames: frames,
		Pieces: s.longest, Targets: 1, Passthrough: t.Passthrough()})
	if err == nil {
		s.target, err = s.queue.Add(t)
	}
	return err
}

// openSessions makes room for clients, and all that is done for them.
func (s *Server) openSessions() error {
	p := s.plan
	port, err := s.config.Endpoint.Device.Port(s.config.Endpoint.Port)
	if err != nil {
		return err
	}
	if port.MaxMessage > 0 && p.transfer > uint64(port.MaxMessage) {
		return fmt.Errorf("requests of %d bytes: %s writes at most %d at once", p.transfer, s.config.Endpoint.Device.Name(), port.MaxMessage)
	}
	s.perRequest = min(max(p.most, 1), max(s.config.Endpoint.Device.Capabilities().MaxSGEs, 1))
	s.operations = make([]operation, p.clients*p.operations())
	s.pieces = make([]piece, len(s.operations)*p.most)
	s.sessions = make([]session, p.clients)
	for i := range s.sessions {
		s.sessions[i].init(s, i)
	}
	s.dirty = make([]*session, 0, p.clients)
	s.count.refused, s.count.turnedAway = newRefusals(), newTurnedAway()
	return nil
}

// sends is how many work requests a client's operations have under way at most.
func (s *Server) sends() int {
	return s.plan.operations() * ((s.plan.most + s.perRequest - 1) / s.perRequest)
}

func (s *Server) openQueues() (err error) {
	make := func(depth int) (rdma.CompletionQueue, error) {
		return s.config.Endpoint.Device.NewCompletionQueue(rdma.CompletionQueueConfig{Depth: depth, Events: s.config.Events})
	}
	if s.sent.Queue, err = make(s.plan.clients * s.sends()); err != nil {
		return err
	}
	s.came.Queue, err = make(s.plan.clients * s.plan.receives())
	return err
}

// Poll does what there is to do: it takes requests, has the disk read, and answers. more says that it
// did something, so that there may be more to do at once. An error is of the disk's queue or the device, and the end of the server:
// it is to be closed.
func (s *Server) Poll(now time.Time) (more bool, err error) {
	if s.closed {
		return false, fmt.Errorf("block server %s: %w", s.config.Name, unix.EBADF)
	}
	s.now = now.UnixNano()
	n, err := s.takeSent()
	came, wrong := s.takeRequests()
	n += came + s.begin()
	s.submit()
	err = errors.Join(err, wrong, s.queue.Kick()) // collects what the disk has read, too
	n += s.takeReads()
	s.post()
	more = n > 0
	if !more && s.config.Events && err == nil {
		more, err = s.arm()
	}
	if err != nil {
		return false, fmt.Errorf("block server %s: %w", s.config.Name, err)
	}
	return more, nil
}

// FDs appends what polls readable when Poll has something to do, with Config.Events.
func (s *Server) FDs(dst []unix.PollFd) []unix.PollFd {
	if s.closed || !s.config.Events {
		return dst
	}
	for _, fd := range []int{s.sent.Queue.FD(), s.came.Queue.FD(), s.queue.FD()} {
		dst = append(dst, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
	return dst
}

// arm has both queues tell of their next completion, and reports whether one did not before: then Poll is to be called again.
func (s *Server) arm() (anew bool, err error) {
	for _, c := range []*ep.Completions{&s.sent, &s.came} {
		one, err := c.Arm(true, true)
		if err != nil {
			return false, err
		}
		anew = anew || one
	}
	return anew, nil
}

// Invalidate forgets what is kept of n bytes from an offset of the target on. Whoever writes there calls it when the write is
// complete, and before he says so to anybody: requests that come later are then answered with what was written, or what came after
// it. Those that came before are answered with the old bytes, the new ones, or some of both.
func (s *Server) Invalidate(offset, n uint64) {
	n = min(n, ^uint64(0)-offset)
	for i := range s.caches {
		s.caches[i].invalidate(offset, n)
	}
}

// Close ends all clients, waits for the disk as nvme.Queue.Close does, and gives every frame to the pool. It is called on the server's thread, or once
// that has ended. After an error it may be called again.
func (s *Server) Close() error { return s.close((*nvme.Queue).Close) }

// CloseWithin is Close that waits for the disk no longer than limit, for a thread that has other things to do and calls it again while the
// error is a nvme.StuckError.
func (s *Server) CloseWithin(limit time.Duration) error {
	return s.close(func(q *nvme.Queue) error { return q.CloseWithin(limit) })
}

func (s *Server) close(disk func(*nvme.Queue) error) error {
	s.closed = true
	var errs []error
	for i := range s.sessions {
		if p := &s.sessions[i]; p.state != sessionFree {
			errs = append(errs, s.end(p, protocol.Closing))
		}
	}
	if s.queue != nil {
		errs = append(errs, disk(s.queue))
	}
	errs = append(errs, s.sent.Close(), s.came.Close())
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close block server %s: %w", s.config.Name, err)
	}
	s.giveBack()
	return nil
}

// giveBack gives all frames to the pool, which nobody writes to or reads from any more.
func (s *Server) giveBack() {
	for i := range s.caches {
		for _, b := range s.caches[i].buffers {
			if b.holder == s.config.Worker {
				s.config.Worker.Give([]umem.Frame{{Addr: b.start}})
			}
		}
		s.caches[i].buffers = nil
	}
	for _, h := range []*umem.Holder{s.cached, s.sending} {
		if h != nil {
			h.Close()
		}
	}
	s.cached, s.sending = nil, nil
}
