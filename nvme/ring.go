package nvme

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/align"
	"github.com/unifiedd/unifiedd/umem"
)

// ring is one io_uring. After enable, all methods but newRing belong to one thread.
type ring struct {
	fd       int
	setup    uint32 // IORING_SETUP flags granted
	features uint32 // IORING_FEAT flags of the kernel
	wide     uint8  // 1: entries of twice the size, for NVMe commands; else 0
	memory   ringMemory
	gone     teardownWait
	sq       submissions
	cq       completions
}

// submissions is the submission queue. The kernel reads entries only during io_uring_enter.
type submissions struct {
	head  *atomic.Uint32 // written by the kernel in io_commit_sqring after it has read the entries, read by us
	tail  *atomic.Uint32 // stored by us after the entries are written, pairs with the acquire in io_sqring_entries
	flags *atomic.Uint32 // written by the kernel: IORING_SQ_TASKRUN in io_ctx_mark_taskrun, IORING_SQ_CQ_OVERFLOW
	drops *atomic.Uint32 // written by the kernel: entries with a bad index
	sqes  []sqe          // written by us up to tail, read by the kernel from head; every second one with wide entries
	mask  uint32
	next  uint32 // our tail, not yet stored
}

// completions is the completion queue.
type completions struct {
	head     *atomic.Uint32 // stored by us after the entries are read, pairs with the read in io_get_cqe
	tail     *atomic.Uint32 // released by the kernel in io_commit_cqring after the entries are written
	overflow *atomic.Uint32 // written by the kernel: completions it had no room for
	cqes     []cqe          // written by the kernel up to tail, read by us from head; every second one with wide entries
	mask     uint32
}

// baseSetup has flags that every supported kernel has: all are in 6.1. The ring starts disabled, so
// that its only submitter is the thread that enables it, and not the one that opens it.
const baseSetup = setupClamp | setupRDisabled | setupSubmitAll | setupCQSize | setupCoopTaskrun | setupTaskrunFlag

// setupOrder is the order of attempts, best first. A kernel or a sandbox that answers EINVAL gets
// the next. The ring gives up memory of the caller before it gives up the index-free mode, because
// the kernel may refuse the memory alone.
var setupOrder = []uint32{
	setupSingleIssuer | setupDeferTaskrun | setupNoSQArray | setupNoMmap,
	setupSingleIssuer | setupDeferTaskrun | setupNoSQArray,
	setupSingleIssuer | setupDeferTaskrun | setupNoMmap,
	setupSingleIssuer | setupDeferTaskrun,
	setupSingleIssuer | setupNoSQArray,
	setupSingleIssuer,
}

// ringPlan describes a ring.
type ringPlan struct {
	region  *umem.Region
	depth   uint32  // number of submissions; there is room for twice as many completions
	always  uint32  // setup flags it must have
	without feature // features not to ask for
}

// newRing makes a disabled ring.
func newRing(plan ringPlan) (*ring, error) {
	var last error
	for _, setup := range setupOrder {
		if setup&setupOf(plan.without) != 0 {
			continue
		}
		r, err := setupRing(plan, setup|plan.always)
		if err == nil {
			return r, nil
		}
		last = err
		if !errors.Is(err, unix.EINVAL) && !errors.Is(err, umem.ErrNoControl) {
			break
		}
	}
	return nil, fmt.Errorf("set up an io_uring: %w", explainSetup(last))
}

// setupOf returns the setup flags of features.
func setupOf(f feature) uint32 {
	var setup uint32
	if f&featureNoMmap != 0 {
		setup |= setupNoMmap
	}
	if f&featureNoSQArray != 0 {
		setup |= setupNoSQArray
	}
	if f&featureDefer != 0 {
		setup |= setupDeferTaskrun
	}
	return setup
}

// explainSetup adds what to do about an error of io_uring_setup.
func explainSetup(err error) error {
	switch {
	case errors.Is(err, unix.ENOSYS):
		return &NotSupportedError{"io_uring", "run Linux 6.1 or later with CONFIG_IO_URING, outside a sandbox that hides it"}
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("%w (run: sysctl kernel.io_uring_disabled=0, or let the container's seccomp profile pass io_uring_setup)", err)
	case errors.Is(err, unix.ENOMEM):
		return fmt.Errorf("%w (raise LimitMEMLOCK or grant CAP_IPC_LOCK)", err)
	case errors.Is(err, unix.EMFILE):
		return fmt.Errorf("%w (raise LimitNOFILE)", err)
	case errors.Is(err, unix.EINVAL):
		return &NotSupportedError{"an io_uring with one submitter", "run Linux 6.1 or later"}
	}
	return err
}

// setupRing tries one set of flags.
func setupRing(plan ringPlan, setup uint32) (*ring, error) {
	entries := align.PowerOfTwo(plan.depth)
	p := ringParams{flags: setup, cqEntries: 2 * entries}
	r := &ring{fd: -1, gone: teardownWait{-1}}
	if setup&setupSQE128 != 0 {
		r.wide = 1
	}
	if setup&setupNoMmap != 0 {
		if err := r.memory.take(plan.region, entries, r.wide); err != nil {
			return nil, err
		}
		p.sqOff.userAddr, p.cqOff.userAddr = address(r.memory.sqes), address(r.memory.rings)
	}
	fd, err := ioUringSetup(entries, &p)
	if err != nil {
		r.memory.giveBack()
		return nil, err
	}
	r.fd, r.setup, r.features = fd, p.flags, p.features
	if err := r.attach(&p); err != nil {
		gone, closing := r.close(goneLimit)
		if !gone {
			r.memory.abandon()
		}
		return nil, errors.Join(err, closing)
	}
	return r, nil
}

// attach maps the memory that the kernel allocated and finds the shared words.
func (r *ring) attach(p *ringParams) error {
	const need = featSingleMmap | featNoDrop | featSubmitStable | featExtArg
	if p.features&need != need {
		return &NotSupportedError{"io_uring without lost completions", "run Linux 6.1 or later"}
	}
	if p.flags&setupNoMmap == 0 {
		if err := r.memory.mmap(r.fd, p, r.wide); err != nil {
			return fmt.Errorf("map the rings: %w", err)
		}
	}
	return r.words(p)
}

// words finds the shared words and entries in the mapped memory.
func (r *ring) words(p *ringParams) error {
	m := &r.memory
	sqes, cqes := uint64(p.sqEntries)<<r.wide, uint64(p.cqEntries)<<r.wide
	if uint64(p.cqOff.cqes)+cqes*cqeSize > uint64(len(m.rings)) || sqes*sqeSize > uint64(len(m.sqes)) {
		return fmt.Errorf("the kernel wants rings of %d and %d entries, larger than the memory for them", p.sqEntries, p.cqEntries)
	}
	r.sq = submissions{head: word(m.rings, p.sqOff.head), tail: word(m.rings, p.sqOff.tail), flags: word(m.rings, p.sqOff.flags),
		drops: word(m.rings, p.sqOff.dropped), sqes: entriesOf[sqe](m.sqes, 0, sqes), mask: p.sqEntries - 1}
	r.cq = completions{head: word(m.rings, p.cqOff.head), tail: word(m.rings, p.cqOff.tail), overflow: word(m.rings, p.cqOff.overflow),
		cqes: entriesOf[cqe](m.rings, uint64(p.cqOff.cqes), cqes), mask: p.cqEntries - 1}
	if r.setup&setupNoSQArray == 0 {
		for i := range p.sqEntries {
			word(m.rings, p.sqOff.array+4*i).Store(i)
		}
	}
	return nil
}

// push adds a submission. There is always room: no more operations are in flight than there are entries.
func (r *ring) push(s sqe) {
	r.sq.sqes[(r.sq.next&r.sq.mask)<<r.wide] = s
	r.sq.next++
}

// pushCommand adds a submission with an NVMe command, which follows the first 48 bytes. Only a ring
// with wide entries has room for it.
func (r *ring) pushCommand(s sqe, c nvmeCommand) {
	i := uint64(r.sq.next & r.sq.mask)
	r.push(s)
	*commandAt(r.memory.sqes, i*2*sqeSize+sqeHead) = c
}

// completion returns the entry at a place of the completion queue.
func (r *ring) completion(head uint32) cqe { return r.cq.cqes[(head&r.cq.mask)<<r.wide] }

// queued returns the number of submissions that the kernel has not read.
func (r *ring) queued() uint32 { return r.sq.next - r.sq.head.Load() }

// needsGetEvents reports whether completions wait inside the kernel for an
// io_uring_enter with IORING_ENTER_GETEVENTS.
func (r *ring) needsGetEvents() bool { return r.sq.flags.Load()&(sqTaskrun|sqCQOverflow) != 0 }

// ready returns the number of completions to read.
func (r *ring) ready() uint32 { return r.cq.tail.Load() - r.cq.head.Load() }

// enter submits the queued submissions. With enterGetEvents among flags it handles completions and
// waits for at least least of them. An interrupted wait is not an error.
//
// The call is raw: the thread keeps its P, one of GOMAXPROCS, while it sleeps. If each sleep were announced
// as a system call, the runtime's monitor thread would check it every 20 µs and take the P away (retake in
// runtime/proc.go). That cost reads of one block a quarter of their rate. The call does not delay the
// garbage collector, which stops a thread by a signal, and a signal ends the wait.
func (r *ring) enter(least uint32, flags, arg, argSize uintptr) error {
	r.sq.tail.Store(r.sq.next)
	for {
		_, _, errno := unix.RawSyscall6(unix.SYS_IO_URING_ENTER, uintptr(r.fd), uintptr(r.queued()), uintptr(least), flags, arg, argSize)
		switch errno {
		case 0, unix.ETIME:
			return nil
		case unix.EINTR:
			if least > 0 {
				return nil
			}
		case unix.EAGAIN, unix.EBUSY: // short of memory: queued submissions stay queued
			return nil
		default:
			return errno
		}
	}
}

// makeTable makes a file table with n places for targets, one for teardownWait and one for Queue.Hold.
func (r *ring) makeTable(n uint32) (err error) {
	if err = r.registerTable(n + 2); err == nil {
		r.gone, err = r.newTeardownWait(n)
	}
	if err != nil {
		return fmt.Errorf("register a table of %d files: %w", n, err)
	}
	return nil
}

// close closes the ring and reports whether the kernel has released everything within limit. Until
// it has, memory in the control area is not used again, and close may be called again. Mapped
// memory is unmapped first, because it keeps the ring.
func (r *ring) close(limit time.Duration) (gone bool, err error) {
	if r.fd >= 0 {
		err = errors.Join(r.memory.unmap(), unix.Close(r.fd))
		r.fd = -1
	}
	if gone = r.gone.await(limit); gone {
		r.memory.giveBack()
		err = errors.Join(err, r.gone.close())
	}
	return gone, err
}
