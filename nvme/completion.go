package nvme

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/align"
	"github.com/unifiedd/unifiedd/umem"
)

// errStray is what Kick reports after a completion that belongs to no operation.
var errStray = errors.New("the kernel completed an operation that was not submitted: do not share the ring's memory")

// Recv returns frames filled by reads. The frames of a failed read carry its error. A read that met
// the end of the target has ENODATA, and the bytes before the end are in place.
func (q *Queue) Recv(dst []umem.Frame) int { return q.give(dst, &q.read) }

// Reap returns frames that were written, or that carry the error, in the order in which the writes
// completed. A chain comes back in one piece. If dst is too short, the first part comes now and the
// rest next time.
func (q *Queue) Reap(dst []umem.Frame) int { return q.give(dst, &q.written) }

// give passes frames of completed operations to the worker.
func (q *Queue) give(dst []umem.Frame, from *fifo) int {
	q.harvest()
	n := 0
	for n < len(dst) && !from.empty() {
		n += q.giveOne(dst[n:], from)
	}
	if n > 0 {
		q.pass(q.holder, q.worker, dst[:n])
		q.held -= n
	}
	q.quiet()
	return n
}

// giveOne returns the frames of the first completed operation, as far as there is room.
func (q *Queue) giveOne(dst []umem.Frame, from *fifo) int {
	i := from.first()
	o := &q.ops[i]
	n := copy(dst, q.chain(i)[o.given:])
	if o.errno != 0 {
		for j := range dst[:n] {
			dst[j] = dst[j].WithError(o.errno)
		}
	}
	o.given += int32(n)
	if o.given == o.count {
		from.drop()
		q.drop(i)
		q.moves--
	}
	return n
}

// harvest reads all completions. If there are none but the kernel says that some wait inside it,
// harvest asks for them.
func (q *Queue) harvest() {
	if q.inFlight == 0 { // true also if the ring is closed
		return
	}
	n := q.ring.ready()
	if n == 0 {
		if !q.ring.needsGetEvents() {
			return
		}
		q.enter(0)
		n = q.ring.ready()
	}
	c := &q.ring.cq
	head := c.head.Load()
	for range n {
		q.complete(q.ring.completion(head))
		head++
	}
	c.head.Store(head)
	q.event.set, q.event.old = true, 0
	q.stats.publish(q)
}

// complete handles one completion.
func (q *Queue) complete(c cqe) {
	if c.userData == cancelData {
		return
	}
	i := uint32(c.userData)
	if uint64(i) >= uint64(len(q.ops)) || !q.ops[i].inFlight || q.ops[i].gen != uint32(c.userData>>32) {
		q.fault = errStray
		return
	}
	o := &q.ops[i]
	errno := q.progress(o, c.res)
	if errno == 0 && o.done < o.total {
		errno = o.beyond(q.targets[o.target].target)
	}
	if errno == 0 && o.done < o.total {
		q.stats.Own.Short++
		q.issue(i)
		return
	}
	if errno != 0 && (q.tryOther(o, errno) || q.tryPinned(o, errno) || q.retryEAGAIN(o, errno)) {
		q.issue(i)
		return
	}
	q.completeOp(i, errno)
}

// completeOp ends an operation that the kernel has completed.
func (q *Queue) completeOp(i uint32, errno unix.Errno) {
	o := &q.ops[i]
	o.inFlight = false
	q.inFlight--
	q.targets[o.target].inFlight--
	q.finish(i, errno)
}

// progress adds the bytes that a completion transferred. If it transferred none, the target has
// ended, or the device is full.
func (q *Queue) progress(o *op, res int32) unix.Errno {
	switch {
	case res < 0:
		return unix.Errno(-res)
	case q.targets[o.target].target.node != nil:
		return q.settle(o, res)
	case o.kind >= flushing:
		o.done = o.total
		return 0
	case res == 0 && o.kind == reading:
		return unix.ENODATA
	case res == 0 || uint64(res) > o.total-o.done:
		return unix.EIO
	}
	o.done += uint64(res)
	q.stats.Own.add(o, uint64(res), q.targets[o.target].target.direct)
	return 0
}

// maxTries is how often the Queue submits an operation again that the kernel gave up.
const maxTries = 64

// retryEAGAIN reports whether to submit an operation again that the kernel gave up before it began.
// Work that could block goes to a thread of the kernel. To start the first such thread the kernel
// tries only a few times (WORKER_INIT_LIMIT in io_uring/io-wq.c). Each attempt fails while a signal
// is pending for our thread, and the Go runtime signals threads that run for long. Once the signal
// has been handled it is no longer pending, so another attempt helps. If the limit on processes
// keeps the thread from being made, attempts must end some time.
func (q *Queue) retryEAGAIN(o *op, errno unix.Errno) bool {
	if errno != unix.ECANCELED || q.closed || o.tries == maxTries {
		return false
	}
	o.tries++
	q.stats.Own.Again++
	return true
}

// fifo is a queue of operation numbers with room for all of them.
type fifo struct {
	items      []uint32
	head, tail uint32
}

func newFifo(depth int) fifo { return fifo{items: make([]uint32, align.PowerOfTwo(uint32(depth)))} }

func (f *fifo) empty() bool { return f.head == f.tail }

func (f *fifo) push(i uint32) {
	f.items[f.tail&uint32(len(f.items)-1)] = i
	f.tail++
}

func (f *fifo) first() uint32 { return f.items[f.head&uint32(len(f.items)-1)] }

func (f *fifo) drop() { f.head++ }
