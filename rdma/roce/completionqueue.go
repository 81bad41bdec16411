package roce

import (
	"fmt"
	"time"

	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/lifetime"
	"github.com/unifiedd/unifiedd/rdma/roce/transport"
)

// completionQueue is a completion queue. A poll that finds it empty drives the device.
type completionQueue struct {
	life  lifetime.Object
	dev   *Device
	cq    *transport.CompletionQueue
	event signal // fd -1: without events
	idle  uint32 // polls in a row that found nothing to do; owned by the thread that polls
}

func (q *completionQueue) String() string { return q.life.String() }

// NewCompletionQueue makes a queue. The only vector is 0.
func (d *Device) NewCompletionQueue(c rdma.CompletionQueueConfig) (rdma.CompletionQueue, error) {
	if c.Vector != 0 {
		return nil, fmt.Errorf("make a completion queue with vector %d: %v has one, number 0", c.Vector, d)
	}
	q := &completionQueue{dev: d, event: signal{fd: -1}}
	var err error
	if q.cq, err = transport.NewCompletionQueue(c.Depth); err != nil {
		return nil, err
	}
	if err := q.life.Begin("completion queue of "+d.title, &d.life); err != nil {
		return nil, err
	}
	if !c.Events {
		return q, nil
	}
	if q.event, err = newSignal(); err != nil {
		q.life.Release()
		return nil, err
	}
	d.eventful.Add(1)
	d.locked(func() { d.waiting[q.cq] = q })
	return q, nil
}

func (q *completionQueue) Depth() int { return q.cq.Depth() }

// Poll returns completions. If there are none it drives the device, unless another thread does, and
// then polls again.
func (q *completionQueue) Poll(dst []rdma.WorkCompletion) (int, error) {
	n, err := q.cq.Poll(dst)
	if n != 0 || err != nil || len(dst) == 0 || q.dev.idle(&q.idle) {
		return n, err
	}
	q.dev.progress(polling)
	n, err = q.cq.Poll(dst)
	if n == 0 && err == nil && q.dev.txPending.Load() && q.dev.batches.Load() == 0 {
		q.dev.progress(posting) // the packet was for another queue: no request of this thread will carry the ACK
	}
	return n, err
}

// spins is the number of empty polls between two readings of the clock.
const spins = 64

// Spin polls until there is a completion or the limit has passed.
func (q *completionQueue) Spin(dst []rdma.WorkCompletion, limit time.Duration) (int, error) {
	n, err := q.Poll(dst)
	if n != 0 || err != nil || limit <= 0 || len(dst) == 0 {
		return n, err
	}
	for begin := time.Now(); n == 0 && err == nil && time.Since(begin) < limit; {
		for i := 0; i < spins && n == 0 && err == nil; i++ {
			n, err = q.Poll(dst)
		}
	}
	return n, err
}

// Arm makes FD readable at the next completion. From then on the progress loop drives the device.
func (q *completionQueue) Arm(solicited bool) error {
	if q.event.fd < 0 {
		return fmt.Errorf("arm %v: it was made without Events", q)
	}
	q.cq.Arm(solicited)
	q.dev.progressLoop.want()
	return nil
}

func (q *completionQueue) FD() int { return q.event.fd }

func (q *completionQueue) Acknowledge() (int, error) {
	if q.event.fd < 0 {
		return 0, nil
	}
	return q.event.taken()
}

func (q *completionQueue) Resize(int) error {
	return fmt.Errorf("resize %v: %w: make a new one", q, rdma.ErrUnsupported)
}

func (q *completionQueue) Close() error {
	return q.life.Close(func() error {
		q.dev.locked(func() {
			if _, ok := q.dev.waiting[q.cq]; ok {
				delete(q.dev.waiting, q.cq)
				q.dev.eventful.Add(-1)
			}
		})
		return q.event.close()
	})
}

// shared is a shared receive queue.
type shared struct {
	life lifetime.Object
	dom  *domain
	rq   *transport.ReceiveQueue
}

func (q *shared) String() string { return q.life.String() }

func (p *domain) NewSharedReceiveQueue(c rdma.SharedReceiveQueueConfig) (rdma.SharedReceiveQueue, error) {
	q := &shared{dom: p}
	var err error
	if q.rq, err = transport.NewSharedReceiveQueue(c); err != nil {
		return nil, err
	}
	if err := q.life.Begin("shared receive queue of "+p.dev.title, &p.life); err != nil {
		return nil, err
	}
	return q, nil
}

func (q *shared) Config() rdma.SharedReceiveQueueConfig { return q.rq.Config() }

func (q *shared) PostReceive(requests []rdma.ReceiveRequest, sges []rdma.SGE) (int, error) {
	return q.rq.PostReceive(requests, sges)
}

func (q *shared) Limit(n int) error {
	if depth := q.rq.Config().Depth; n < 1 || n > depth {
		return fmt.Errorf("limit %d of %v: it must be 1 to %d", n, q, depth)
	}
	q.rq.Limit(n)
	return nil
}

func (q *shared) Close() error { return q.life.Close(func() error { return nil }) }
