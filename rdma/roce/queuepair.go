package roce

import (
	"fmt"

	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/lifetime"
	"github.com/unifiedd/unifiedd/rdma/roce/transport"
	"github.com/unifiedd/unifiedd/umem"
)

// queuePair is a queue pair. Posting to it drives the device.
type queuePair struct {
	life   lifetime.Object
	dom    *domain
	dev    *Device
	qp     *transport.QueuePair
	config rdma.QueuePairConfig
	at     rdma.Address // of peer
	peer   transport.Peer
	led    bool // peer is a path of this queue pair
	groups map[rdma.GID]bool
}

func (q *queuePair) String() string { return q.life.String() }

var (
	_ rdma.Lender = (*queuePair)(nil)
	_ rdma.Member = (*queuePair)(nil)
)

// NewQueuePair makes a queue pair in RESET. With Loans it takes that many frames from the region,
// to make up for those on loan.
func (p *domain) NewQueuePair(c rdma.QueuePairConfig) (rdma.QueuePair, error) {
	return p.newQueuePair(c, 0)
}

// newQueuePair is NewQueuePair with a given number; 0: any.
func (p *domain) newQueuePair(c rdma.QueuePairConfig, number uint32) (rdma.QueuePair, error) {
	q := &queuePair{dom: p, dev: p.dev, config: c}
	t, parts, err := p.queuePairParts(&c)
	t.Number = number
	if err == nil {
		err = q.life.Begin(fmt.Sprintf("%v queue pair of %s", c.Transport, p.dev.title), parts...)
	}
	if err == nil {
		p.dev.locked(func() { err = q.make(&t) })
	}
	if err != nil {
		q.life.Release()
		return nil, fmt.Errorf("make a queue pair of %v: %w", p.dev, err)
	}
	q.life.SetName(fmt.Sprintf("%v queue pair %d of %s", c.Transport, q.qp.Number(), p.dev.title))
	granted := q.qp.Config()
	q.config = granted.QueuePairConfig
	q.config.SendCQ, q.config.ReceiveCQ, q.config.Shared = c.SendCQ, c.ReceiveCQ, c.Shared
	return q, nil
}

// QueuePairs returns the number of open queue pairs.
func (d *Device) QueuePairs() int {
	d.lock.Lock()
	defer d.unlock()
	return len(d.pairs)
}

// make makes the engine's queue pair. The caller holds the device's lock.
func (q *queuePair) make(t *transport.QueuePairConfig) (err error) {
	m := &q.dev.datapath
	if err = m.grow(max(0, t.Loans)); err != nil {
		return err
	}
	if q.qp, err = m.engine.NewQueuePair(*t); err != nil {
		m.shrink(max(0, t.Loans))
		return err
	}
	q.dev.pairs[q.qp] = true
	return nil
}

// queuePairParts translates a config for the engine, and returns the parents of the queue pair.
func (p *domain) queuePairParts(c *rdma.QueuePairConfig) (transport.QueuePairConfig, []*lifetime.Object, error) {
	t := transport.QueuePairConfig{QueuePairConfig: *c, Domain: p.number}
	send, ok1 := c.SendCQ.(*completionQueue)
	recv, ok2 := c.ReceiveCQ.(*completionQueue)
	if !ok1 || !ok2 || send.dev != p.dev || recv.dev != p.dev {
		return t, nil, fmt.Errorf("SendCQ and ReceiveCQ must be completion queues of this device")
	}
	t.SendCQ, t.ReceiveCQ = send.cq, recv.cq
	parts := []*lifetime.Object{&p.life, &send.life, &recv.life}
	if c.Shared != nil {
		s, ok := c.Shared.(*shared)
		if !ok || s.dom != p {
			return t, nil, fmt.Errorf("the shared receive queue must be of this protection domain")
		}
		t.Shared, parts = s.rq, append(parts, &s.life)
	}
	if c.Loans > transport.MaxLoans {
		return t, nil, fmt.Errorf("number of Loans %d: the most is %d", c.Loans, transport.MaxLoans)
	}
	return t, parts, nil
}

func (q *queuePair) QPN() uint32 { return q.qp.Number() }

func (q *queuePair) Config() rdma.QueuePairConfig { return q.config }

func (q *queuePair) State() (rdma.State, error) { return q.qp.State(), nil }

// Query returns the attributes that the engine has.
func (q *queuePair) Query() (a rdma.Attributes, err error) {
	err = q.life.WhileOpen(func() error {
		q.dev.locked(func() { a = q.qp.Query() })
		return nil
	})
	return a, err
}

// PostSend posts requests, and sends as many of their packets as possible at once.
func (q *queuePair) PostSend(requests []rdma.SendRequest, sges []rdma.SGE) (int, error) {
	if len(requests) == 1 && q.dev.batches.Load() == 0 && q.dev.post(q.qp, &requests[0], sges) {
		return 1, nil
	}
	n, err := q.qp.PostSend(requests, sges)
	if n > 0 && !q.dev.joins() {
		q.dev.progress(posting)
	}
	return n, err
}

// PostReceive posts receives. In ERR they complete with WorkFlushed.
func (q *queuePair) PostReceive(requests []rdma.ReceiveRequest, sges []rdma.SGE) (int, error) {
	n, err := q.qp.PostReceive(requests, sges)
	if n > 0 && q.qp.State() == rdma.Error {
		q.dev.progress(posting)
	}
	return n, err
}

// Bind posts a request to bind a window.
func (q *queuePair) Bind(id uint64, w rdma.MemoryWindow, m rdma.MemoryRegion, addr, length uint64, a rdma.Access, f rdma.Flags) error {
	win, ok1 := w.(*window)
	mem, ok2 := m.(*memory)
	switch {
	case !ok1 || !ok2 || win.dom != q.dom || mem.dev != q.dev:
		return fmt.Errorf("bind a memory window with %v: window and memory must be of its protection domain", q)
	case mem.access&rdma.BindWindows == 0:
		return fmt.Errorf("bind a memory window with %v: the memory is registered with %v, and not with window bind", q, mem.access)
	}
	if q.config.SignalAll {
		f |= rdma.Signaled
	}
	err := q.qp.Bind(id, win.win, mem.key, addr, length, a, f)
	if err == nil {
		q.dev.progress(posting)
	}
	return err
}

// Loaned returns frames that hold received messages. The program has them until Return.
func (q *queuePair) Loaned(dst []umem.Frame) int { return q.qp.Loaned(dst) }

// Return gives the frames back to the device.
func (q *queuePair) Return(frames []umem.Frame) {
	if len(frames) == 0 {
		return
	}
	q.qp.Return(frames)
	q.dev.progress(posting)
}

// Close destroys the queue pair. The program keeps frames on loan until Return.
func (q *queuePair) Close() error {
	return q.life.Close(func() error {
		q.dev.locked(func() {
			m := &q.dev.datapath
			m.round() // sends the packets that the peer waits for
			for group := range q.groups {
				q.detach(group)
			}
			q.qp.Close()
			delete(q.dev.pairs, q.qp)
			m.collect()
			m.shrink(q.config.Loans)
			if q.led {
				m.dropPath(q.peer)
			}
		})
		return nil
	})
}
