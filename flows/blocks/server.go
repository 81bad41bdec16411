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
	cached  *umem.Holder // cached buffers that are not in use
	sending *umem.Holder // buffers being written to clients, and control buffers
	queue   *nvme.Queue
	target  uint32
	sent    ep.Completions
	came    ep.Completions
	cells   *ep.ControlBuffers
	caches  [shelves]bufferCache
	index   *index // of what the caches have while no server runs; nil: none

	kept      uint64             // buffers with data of an earlier server, when this one was opened
	discarded map[Discard]uint64 // those whose data is not used; constant after Open

	sessions   []session
	operations []operation // of all sessions, one after the other
	pieces     []piece     // of all operations, one after the other
	perRequest int         // the most SGEs of a WRITE
	turn       int         // the session whose request begins next
	waiting    int         // requests of all sessions that have not begun
	dirty      []*session  // those with something to post
	reads      []umem.Frame
	submitted  int // the number of reads, from the first on, that the disk's queue has accepted
	links      int // reads merged with the last one
	longest    int // the most reads that can be merged
	ready      [1]umem.Frame
	now        int64 // of this round, in nanoseconds

	count  counters
	closed bool
	mu     sync.Mutex // guards who and count of the sessions
}

// Open takes the resources of a server. The server accepts no client until Serve is called. Open
// may be called from any thread.
func Open(c Config) (*Server, error) {
	s := &Server{config: c, discarded: map[Discard]uint64{}}
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
	if err := s.openKept(); err != nil {
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
		cache := &s.caches[i]
		frames := make([]umem.Frame, p.caches[i].buffers)
		n := cache.taken(frames)
		n += k.take(frames[n:])
		cache.size, cache.keep, cache.aligned, cache.share = k.size, p.keep, i == frameCache, newShare(p.caches[i], p.clients)
		cache.fill(frames[:n], worker)
		cache.takeOver(s.cached)
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

// openSessions allocates the sessions and their operations.
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

// sends returns how many work requests a client's operations may have in flight.
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

// Poll processes requests, reads of the disk, and answers. more says that it did something, so
// there may be more to do at once. An error comes from the disk's queue or the device: the server
// cannot continue and must be closed.
func (s *Server) Poll(now time.Time) (more bool, err error) {
	if s.closed {
		return false, fmt.Errorf("block server %s: %w", s.config.Name, unix.EBADF)
	}
	s.now = now.UnixNano()
	n, err := s.takeSent()
	came, wrong := s.takeRequests()
	n += came + s.begin()
	s.submit()
	err = errors.Join(err, wrong, s.queue.Kick()) // Kick also collects completed reads
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

// FDs appends the descriptors that poll readable when Poll has work, with Config.Events.
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
// called again.
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

// Invalidate forgets cached data of n bytes from an offset of the target on. A writer must call it
// when the write is complete and before it reports the write. Requests that arrive later get the
// written data or newer data. Earlier requests get old bytes, new ones, or a mix.
func (s *Server) Invalidate(offset, n uint64) {
	n = min(n, ^uint64(0)-offset)
	for i := range s.caches {
		s.caches[i].invalidate(offset, n)
	}
}

// Close ends all clients, waits for the disk as nvme.Queue.Close does, and gives every frame back
// to the region. Close is called on the server's thread, or after that thread has ended. After an
// error it may be called again.
//
// With Config.Index, Close also reads all that is cached and writes the index.
func (s *Server) Close() error {
	if err := s.close((*nvme.Queue).Close); err != nil {
		return err
	}
	err := s.keep()
	s.giveBack()
	if err != nil {
		return fmt.Errorf("close block server %s: %w", s.config.Name, err)
	}
	return nil
}

// CloseWithin is Close with a limit to the wait for the disk. It is for a thread with other work,
// which calls it again while the error is an nvme.StuckError. With Config.Index, the frames stay with the server
// until Close, which another thread may call then.
func (s *Server) CloseWithin(limit time.Duration) error {
	err := s.close(func(q *nvme.Queue) error { return q.CloseWithin(limit) })
	if err == nil && s.index == nil {
		s.giveBack()
	}
	return err
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
	return nil
}

// giveBack gives all frames back to the region. No device may use them.
func (s *Server) giveBack() {
	for i := range s.caches {
		cache := &s.caches[i]
		for _, b := range cache.buffers {
			if b.holder == s.config.Worker {
				s.config.Worker.Give([]umem.Frame{{Addr: b.start}})
			}
		}
		for _, e := range cache.kept {
			s.config.Worker.Give([]umem.Frame{{Addr: e.address}})
		}
		s.config.Worker.Give(cache.spare)
		cache.buffers, cache.kept, cache.spare = nil, nil, nil
	}
	for _, h := range []*umem.Holder{s.cached, s.sending} {
		if h != nil {
			h.Close()
		}
	}
	s.cached, s.sending = nil, nil
}
