package transport

import "github.com/unifiedd/unifiedd/rdma/roce/wire"

// ackCoalescing is how acknowledgements are kept back, so that one says what several would have. A peer that waits for them must not
// find out: that it goes on without so many is known of peers that did, and now and then it is tried whether twice as many would do. One that
// stops gets half as many at once from then on.
type ackCoalescing struct {
	held     int      // acknowledgements kept back
	since    wire.PSN // expected behind the packet of the first one
	old      int      // as many as there were when Relieve was called last
	most     int      // that one says at once: the peer went on without so many
	vain     int      // how many were tried the last time that it did not; 0: it always did
	stopped  bool     // there were fewer, the last time
	untried  int      // messages until more are tried
	interval int      // messages between tries
}

const (
	firstTry = 16
	lastTry  = 1 << 14
)

// impatient is what a connection begins with.
var impatient = ackCoalescing{most: 1, untried: firstTry, interval: firstTry}

// scheduleACK has a packet acknowledged that asks for it, now or together with those that follow.
func (q *QueuePair) scheduleACK() {
	q.untried--
	if !q.ack && q.defersACK() {
		q.engine.lists[holding].add(q)
		return
	}
	q.acknowledge()
}

// acknowledge has everything that came acknowledged by what is sent next.
func (q *QueuePair) acknowledge() {
	q.ack = true
	q.engine.lists[answering].add(q)
}

// defersACK counts an acknowledgement, and says whether it may wait for further ones: not beyond a quarter of the packets that a peer may
// have under way, of which there may be many in a message.
func (q *QueuePair) defersACK() bool {
	c := &q.engine.config
	if q.held == 0 {
		q.old, q.since = 0, q.expected
	}
	q.held++
	if q.held < min(q.wanted(), c.Hold) && q.expected.Distance(q.since) < c.Window/4 {
		return true
	}
	if q.stopped = false; q.held > q.most {
		q.grow()
	}
	return false
}

// wanted is how many acknowledgements are to be kept back: twice as many as are known to do, where that is tried.
func (q *QueuePair) wanted() int {
	if q.untried < 0 {
		return 2 * q.most
	}
	return q.most
}

// grow notes that the peer went on without more than before. Only what is beyond all that it did not go on without has the next try come soon.
func (q *QueuePair) grow() {
	if q.most = q.held; q.most >= q.vain {
		q.vain, q.interval = 0, firstTry
	}
	q.untried = q.interval
}

// HasDeferredACKs says whether acknowledgements are kept back.
func (e *Engine) HasDeferredACKs() bool { return e.lists[holding].n > 0 }

// Release ends that for all: Send gives them. It is called when nothing has come for a while.
func (e *Engine) Release() {
	for l := &e.lists[holding]; l.n > 0; {
		if q := l.next(); q.holds() {
			q.yield()
		}
	}
}

// FlushACKs is Release for those queue pairs that kept back acknowledgements already when it was called before, and reports whether there were some. It
// bounds how long that takes while others go on. A peer that has gone on since is slow, and has not stopped.
func (e *Engine) FlushACKs() (some bool) {
	l := &e.lists[holding]
	for range l.n {
		switch q := l.next(); {
		case !q.holds():
		case q.old == 0:
			q.old = q.held
			l.add(q)
		case q.held > q.old:
			q.stopped, some = false, true
			q.acknowledge()
		default:
			q.yield()
			some = true
		}
	}
	return some
}

// yield gives what is kept back. Once a peer may have had no more to send; twice in a row, or with no more than are known to do while
// more are tried, it has stopped.
func (q *QueuePair) yield() {
	if q.stopped || q.untried < 0 && q.held >= q.most {
		q.vain, q.interval = max(q.held+1, q.wanted()), min(2*q.interval, lastTry)
		q.most, q.untried = max(1, q.held/2), q.interval
	}
	q.stopped = true
	q.acknowledge()
}

// repeated acknowledges what came before, again. A peer that repeats what it was not told of yet has not gone on.
func (q *QueuePair) repeated() {
	if q.holds() {
		q.yield()
		return
	}
	q.acknowledge()
}

// holds says whether acknowledgements are kept back, and not to be given by what is sent next.
func (q *QueuePair) holds() bool { return q.held > 0 && !q.ack }
