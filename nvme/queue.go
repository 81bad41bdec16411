package nvme

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/umem"
)

// Queue is one io_uring with the region's memory registered. It implements
// umem.Port.
type Queue struct {
	name    string
	region  *umem.Region
	worker  *umem.Holder
	holder  *umem.Holder
	ring    *ring
	scratch *scratch
	reg     *umem.Registration
	base    uint64 // address of the region's first byte
	size    uint64 // bytes of the region
	granted Granted
	enabled bool
	closed  bool
	fault   error // what the next Kick reports

	ops     []op
	frames  []umem.Frame // as many as pieces for each of ops
	pieces  int          // most frames of an operation
	depth   int          // most reads and writes at a time
	most    int          // most frames at a time
	held    int          // frames in the queue
	moves   int          // reads and writes in the queue
	flushes int          // flushes, discards and zeroings in the queue
	free    []uint32     // numbers of ops not in use, a stack
	flying  int          // operations the kernel has
	read    fifo         // reads that completed, to be received
	written fifo         // writes that completed, to be reaped
	flushed fifo         // flushes, discards and zeroings that completed
	targets []place
	count   counters // what stats publishes
	stats   stats
	event   event

	patience time.Duration // of Close
}

var _ umem.Port = (*Queue)(nil)

// Open makes a queue and registers the region's memory with it. It may be called
// on any thread; see the package comment for the rest. The caller closes the
// queue before the region and before the worker's book.
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

// newQueue makes a queue that has nothing of the kernel's yet.
func newQueue(c Config) *Queue {
	region := c.Worker.Book().Region()
	n := c.operations()
	q := &Queue{name: c.Name, region: region, worker: c.Worker, pieces: c.Pieces, depth: c.Depth, most: c.Frames,
		base: address(region.Data()), size: region.Size(), event: event{fd: -1}, patience: drainLimit,
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
	return q.registerRegion()
}

// registerRegion registers the region's memory, pinned until it is unregistered.
func (q *Queue) registerRegion() error {
	buffers := q.region.Buffers()
	if err := checkBuffers(buffers); err != nil {
		return err
	}
	if err := q.ring.registerBuffers(buffers); err != nil {
		return fmt.Errorf("register %d bytes of the region in %d buffers: %w", q.size, len(buffers), explainBuffers(err))
	}
	q.reg = q.region.Register("io_uring of " + q.name)
	return nil
}

// explainBuffers adds what to do about an error of IORING_REGISTER_BUFFERS.
func explainBuffers(err error) error {
	if errors.Is(err, unix.ENOMEM) || errors.Is(err, unix.EPERM) {
		return fmt.Errorf("%w (raise LimitMEMLOCK above the region's size or grant CAP_IPC_LOCK)", err)
	}
	return err
}

// granted says what the kernel gave, less what is to be done without.
func (r *ring) granted(without feature) Granted {
	return Granted{
		RingsInRegion: r.memory.piece != nil,
		NoIndexArray:  r.setup&setupNoSQArray != 0,
		DeferTaskrun:  r.setup&setupDeferTaskrun != 0,
		Poll:          r.polled(),
		Submitter:     r.helped(),
		GatherFixed:   without&featureGatherFixed == 0 && r.supports(opReadvFixed, opWritevFixed),
	}
}

// Granted says what the kernel gave of what was asked for.
func (q *Queue) Granted() Granted { return q.granted }

// Limits says what the queue can take. Reads and writes share it: each may use
// all of it while there are none of the other. A queue opened with more Frames
// than Depth takes that many only in chains.
func (q *Queue) Limits() umem.Limits {
	return umem.Limits{Message: maxMessage, Frames: q.pieces, Supply: q.most, Send: q.most}
}
