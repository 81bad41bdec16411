package roce

import (
	"time"

	"github.com/unifiedd/unifiedd/rdma"
)

var _ rdma.SpinPoster = (*queuePair)(nil)

// SpinPost is that of rdma.SpinPoster. A message that comes alone is answered before the device is given back.
func (q *queuePair) SpinPost(from rdma.CompletionQueue, dst []rdma.WorkCompletion, limit time.Duration, requests []rdma.SendRequest,
	sges []rdma.SGE) (completed, posted int, err error) {
	c, ok := from.(*completionQueue)
	if ok = ok && c.dev == q.dev && len(requests) == 1 && len(dst) > 0; ok {
		completed, posted, err = q.meet(c, dst, limit, requests, sges)
	} else {
		completed, err = from.Spin(dst, limit)
	}
	if completed == 0 || posted > 0 || err != nil || !good(dst[:completed]) {
		return completed, posted, err
	}
	posted, err = q.PostSend(requests, sges)
	return completed, posted, err
}

// meet is SpinPost of one request, which it leaves to be posted where it has not.
func (q *queuePair) meet(c *completionQueue, dst []rdma.WorkCompletion, limit time.Duration, requests []rdma.SendRequest,
	sges []rdma.SGE) (completed, posted int, err error) {
	var begin time.Time
	for i := uint(0); ; i++ {
		if c.cq.Empty() && q.dev.idles(&c.idle) {
			if i%spins != 0 {
				continue
			}
		} else if completed, posted = q.dev.answer(c, dst, q, &requests[0], sges); completed != 0 {
			return completed, posted, nil
		} else if completed, err = c.look(dst); completed != 0 || err != nil {
			return completed, 0, err
		}
		switch {
		case limit <= 0:
			return 0, 0, nil
		case begin.IsZero():
			begin = time.Now()
		case time.Since(begin) >= limit:
			return 0, 0, nil
		}
	}
}

// answer takes a message that came alone, and what else is complete, and when all of it is good posts a request, where that can be
// sent at once.
func (d *Device) answer(c *completionQueue, dst []rdma.WorkCompletion, q *queuePair, r *rdma.SendRequest, sges []rdma.SGE) (completed, posted int) {
	if !d.lock.TryLock() {
		return 0, 0
	}
	defer d.unlock()
	m := &d.datapath
	m.fastReceive()
	if completed, _ = c.cq.Poll(dst); completed > 0 && good(dst[:completed]) && m.fastPost(q.qp, r, sges) {
		posted = 1
	}
	m.finishReceive()
	if posted > 0 {
		m.send()
	}
	d.did(posting)
	return completed, posted
}

// good says whether all are successes.
func good(cs []rdma.WorkCompletion) bool {
	for i := range cs {
		if cs[i].Status != rdma.Success {
			return false
		}
	}
	return true
}
