package transport

// patience is how acknowledgements are kept back, so that one says what several would have. A peer that waits for them must not
// find out: it is tried now and then whether this one goes on without, and when it stops, that ends.
type patience struct {
	held     int  // acknowledgements kept back
	old      bool // they were when Relieve was called last
	patient  bool // the peer went on without, the last time
	untried  int  // messages until it is tried again
	interval int  // messages between tries
}

const (
	firstTry = 16
	lastTry  = 1 << 14
)

// impatient is what a connection begins with.
var impatient = patience{untried: firstTry, interval: firstTry}

// owe has a packet acknowledged that asks for it, now or together with those that follow.
func (q *QueuePair) owe() {
	e := q.engine
	if !q.ack && q.mayWait() {
		if q.held == 0 {
			q.old = false
		}
		if q.held++; q.held < e.config.Hold {
			e.lists[holding].add(q)
			return
		}
		q.patient, q.interval = true, firstTry
	}
	q.ack = true
	e.lists[answering].add(q)
}

// mayWait says whether the acknowledgement of a packet may be kept back.
func (q *QueuePair) mayWait() bool {
	if q.patient || q.held > 0 || q.engine.config.Hold == 1 {
		return q.engine.config.Hold > 1
	}
	q.untried--
	return q.untried < 0
}

// Holding says whether acknowledgements are kept back.
func (e *Engine) Holding() bool { return e.lists[holding].n > 0 }

// Release ends that for all: Send gives them. It is called when nothing has come for a while.
func (e *Engine) Release() {
	for l := &e.lists[holding]; l.n > 0; {
		if q := l.next(); q.held > 0 {
			q.yield()
		}
	}
}

// Relieve is Release for those queue pairs that kept back acknowledgements already when it was called before, and reports whether there were some. It
// bounds how long that takes while others go on.
func (e *Engine) Relieve() (some bool) {
	l := &e.lists[holding]
	for range l.n {
		switch q := l.next(); {
		case q.held == 0:
		case q.old:
			q.yield()
			some = true
		default:
			q.old = true
			l.add(q)
		}
	}
	return some
}

// yield gives what is kept back.
func (q *QueuePair) yield() {
	q.patient, q.untried, q.interval = false, q.interval, min(2*q.interval, lastTry)
	q.ack = true
	q.engine.lists[answering].add(q)
}
