package nvme

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/umem"
)

// Queue is one io_uring with the region's memory registered. It implements
// umem.Port.
type Queue struct {
	name         string
	region       *umem.Region
	worker       *umem.Holder
	holder       *umem.Holder
	ring         *ring
	scratch      *scratch
	reg          *umem.Registration
	base         uint64 // address of the region's first byte
	size         uint64 // bytes of the region
	buffers      bufferNumbers
	outside      outside
	unregistered bool // the region is not registered
	granted      Granted
	enabled      bool
	closed       bool
	fault        error // the next Kick returns it

	ops      []op
	frames   []umem.Frame // pieces frames for each of ops
	pieces   int          // largest number of frames of an operation
	depth    int          // largest number of reads and writes at a time
	most     int          // largest number of frames at a time
	held     int          // frames in the queue
	moves    int          // reads and writes in the queue
	flushes  int          // flushes, discards and zeroings in the queue
	free     []uint32     // numbers of ops not in use, a stack
	inFlight int          // operations that the kernel has
	read     fifo         // completed reads, for Recv
	written  fifo         // completed writes, for Reap
	flushed  fifo         // completed flushes, discards and zeroings
	targets  []place
	stats    stats
	event    event

	closeTimeout time.Duration // limit of Close
}

var _ umem.Port = (*Queue)(nil)

// Open makes a queue and registers the region's memory with it. Any thread may call it; the package
// comment has the rules for the other methods. The caller closes the queue before the region and
// before the worker's book.
func Open(c Config) (*Queue, error) {
	if err := c.setDefaults(); err != nil {
		return nil, fmt.Errorf("open block queue: %w", err)
	}
	q := newQueue(c)
	if err := q.open(c); err != nil {
		return nil, errors.Join(fmt.Errorf("open block queue %s: %w", c.Name, err), q.release(time.Now()))
	}
	return q, nil
}

// newQueue makes a queue without resources of the kernel.
func newQueue(c Config) *Queue {
	region := c.Worker.Book().Region()
	n := c.operations()
	q := &Queue{name: c.Name, region: region, worker: c.Worker, pieces: c.Pieces, depth: c.Depth, most: c.Frames,
		base: address(region.Data()), size: region.Size(), buffers: numberBuffers(region.Buffers()), event: event{fd: -1}, closeTimeout: drainLimit,
		ops: make([]op, n), frames: make([]umem.Frame, n*c.Pieces), free: make([]uint32, 0, n),
		read: newFifo(n), written: newFifo(n), flushed: newFifo(n),
		targets: make([]place, c.Targets)}
	for i := n - 1; i >= 0; i-- {
		q.free = append(q.free, uint32(i))
	}
	return q
}

func (q *Queue) open(c Config) (err error) {
	if q.holder, err = c.Worker.Book().NewHolder(umem.OwnerNVMe, "block queue "+c.Name); err != nil {
		return err
	}
	if q.outside, err = newOutside(c.Outside, q.region); err != nil {
		return err
	}
	if q.scratch, err = newScratch(uint64(c.operations()), uint64(c.Pieces)); err != nil {
		return err
	}
	if q.ring, err = newRing(c.plan(q.region)); err != nil {
		return err
	}
	q.granted = q.ring.granted(c.without)
	if err = q.ring.makeTable(uint32(c.Targets)); err != nil {
		return err
	}
	if c.Apart {
		if err := q.ring.limitWorkers(maxDepth+MaxFlushes, 0); err != nil {
			return fmt.Errorf("have the kernel start a thread for each operation that would block: %w", err)
		}
	}
	return q.registerRegion(c.without)
}

// registerRegion registers the region's memory. It is pinned until it is unregistered.
//
// Before Linux 6.5, io_uring registers neither the memory of a device, such as a region on a device-DAX device, nor
// the ring of a packet socket, and answers EOPNOTSUPP (io_pin_pages in io_uring/rsrc.c: "don't support file backed
// memory"). Their pages are then pinned for each operation.
func (q *Queue) registerRegion(without feature) error {
	inside, beside := q.region.Buffers(), q.outside.buffers()
	buffers := append(slices.Clip(inside), beside...)
	if err := checkBuffers(buffers); err != nil {
		return err
	}
	err := q.ring.registerBuffers(buffers)
	if (errors.Is(err, unix.ENOMEM) || errors.Is(err, unix.EOPNOTSUPP)) && len(beside) > 0 { // ENOMEM: beyond LimitMEMLOCK
		err, q.outside.unregistered = q.ring.registerBuffers(inside), true
	}
	if err == nil && without&featureDeviceMemory != 0 {
		err = errors.Join(q.ring.unregisterBuffers(), unix.EOPNOTSUPP)
	}
	if errors.Is(err, unix.EOPNOTSUPP) {
		err, q.unregistered = nil, true
	}
	if err != nil {
		return fmt.Errorf("register %d bytes in %d buffers: %w", q.size+q.outside.size, len(buffers), explainBuffers(err))
	}
	q.reg = q.region.Register("io_uring of " + q.name)
	return nil
}

// explainBuffers adds what to do about an error of IORING_REGISTER_BUFFERS.
func explainBuffers(err error) error {
	if errors.Is(err, unix.ENOMEM) || errors.Is(err, unix.EPERM) {
		return fmt.Errorf("%w (raise LimitMEMLOCK above the size of the region and of rings outside of it, or grant CAP_IPC_LOCK)", err)
	}
	return err
}

// granted returns what the kernel granted, without the features that the caller does not want.
func (r *ring) granted(without feature) Granted {
	return Granted{
		RingsInRegion: r.memory.piece != nil,
		NoIndexArray:  r.setup&setupNoSQArray != 0,
		DeferTaskrun:  r.setup&setupDeferTaskrun != 0,
		GatherFixed:   without&featureGatherFixed == 0 && r.supports(opReadvFixed, opWritevFixed),
	}
}

// Granted returns what the kernel granted.
func (q *Queue) Granted() Granted {
	g := q.granted
	g.Region, g.Outside = !q.unregistered, !q.outside.unregistered
	return g
}

// Limits returns what the queue can take. Reads and writes share the limits: each may use all of them while
// there are none of the other. A queue opened with more Frames than Depth takes that many only in chains.
func (q *Queue) Limits() umem.Limits {
	return umem.Limits{Message: maxMessage, Frames: q.pieces, Supply: q.most, Send: q.most}
}

// ErrBusy says that the queue has the largest number of flushes, discards and zeroings, sixteen.
var ErrBusy = errors.New("too many flushes, discards and zeroings in the block queue: take what Flushed gives and try again")

// ErrClosed is returned by a queue or target that has been closed.
var ErrClosed = errors.New("closed already")

// ErrNoTarget says that a flush, discard or zeroing names no target of the queue.
var ErrNoTarget = errors.New("the block queue has no such target")

// FlushResult is the result of a Flush, Discard or Zero.
type FlushResult struct {
	Token uint64 // the caller's token
	Err   error  // nil: success, and what a flush covers is on stable storage; on a node a Status
}

// Flush queues an fdatasync of a target. When it has completed without error, every write to the target
// that Reap returned before the call of Flush is on stable storage, with the metadata needed to read it.
// Writes that were still in flight at that time may or may not be. It starts with the next Kick,
// concurrently with reads and writes: in a thread of the kernel (io-wq), or on a node as a command.
func (q *Queue) Flush(target uint32, token uint64) error {
	if err := q.admit(target, flushing); err != nil {
		return err
	}
	q.issue(q.begin(flushing, target, token))
	return nil
}

// admit returns why the queue cannot take an operation without frames.
func (q *Queue) admit(target uint32, k kind) error {
	switch {
	case q.closed:
		return ErrClosed
	case uint64(target) >= uint64(len(q.targets)) || q.targets[target].target == nil:
		return ErrNoTarget
	case q.flushes == MaxFlushes:
		return ErrBusy
	}
	return nil
}

// begin starts an operation without frames.
func (q *Queue) begin(k kind, target uint32, token uint64) uint32 {
	q.flushes++
	i := q.take(k)
	q.ops[i].target, q.ops[i].token = target, token
	return i
}

// Flushed fills dst with the results of completed flushes, discards and zeroings, and returns how
// many there are.
func (q *Queue) Flushed(dst []FlushResult) int {
	q.harvest()
	n := 0
	for n < len(dst) && !q.flushed.empty() {
		i := q.flushed.first()
		dst[n] = FlushResult{Token: q.ops[i].token}
		dst[n].Err = q.ops[i].failure()
		q.flushed.drop()
		q.drop(i)
		q.flushes--
		n++
	}
	q.quiet()
	return n
}

// failure returns why an operation failed, or nil.
func (o *op) failure() error {
	switch {
	case o.status != 0:
		return o.status
	case o.errno != 0:
		return o.errno
	}
	return nil
}
