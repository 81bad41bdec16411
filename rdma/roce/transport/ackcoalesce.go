package transport

import "github.com/unifiedd/unifiedd/rdma/roce/wire"

// ackCoalescing delays ACKs so that one ACK can acknowledge several messages, but does not delay a
// peer that waits for its ACK. It learns how many ACKs a peer can do without: the number without
// which the peer has continued to send. From time to time it tries twice as many. When a peer has
// stopped (see flushIdle), the new number is half of those that were delayed.
type ackCoalescing struct {
	pending        int      // delayed ACKs
	firstPSN       wire.PSN // the expected PSN after the packet of the first one
	pendingAtFlush int      // pending when FlushACKs was last called
	limit          int      // ACKs that one stands for: without these the peer continued to send
	failedLimit    int      // the smallest limit at which the peer stalled; 0: none
	wasIdle        bool     // the last time there were fewer than expected
	untilProbe     int      // messages until the next try of more
	interval       int      // messages between two tries
}

const (
	firstTry = 16
	lastTry  = 1 << 14
)

// noCoalescing is the state of a new connection.
var noCoalescing = ackCoalescing{limit: 1, untilProbe: firstTry, interval: firstTry}

// scheduleACK acknowledges a packet that asks for it, now or together with later ones.
func (q *QueuePair) scheduleACK() {
	q.untilProbe--
	if !q.ack && q.defersACK() {
		q.engine.lists[holding].add(q)
		return
	}
	q.acknowledge()
}

// acknowledge makes the next Send acknowledge everything that has arrived.
func (q *QueuePair) acknowledge() {
	q.ack = true
	q.engine.lists[answering].add(q)
}

// defersACK counts an ACK and reports whether it may wait for more. It may not wait longer than for
// a quarter of the packets that the peer may have in flight: a message may have many packets.
func (q *QueuePair) defersACK() bool {
	c := &q.engine.config
	if q.pending == 0 {
		q.pendingAtFlush, q.firstPSN = 0, q.expected
	}
	q.pending++
	if q.pending < min(q.wanted(), c.Hold) && q.expected.Distance(q.firstPSN) < c.Window/4 {
		return true
	}
	if q.wasIdle = false; q.pending > q.limit {
		q.raiseLimit()
	}
	return false
}

// wanted returns how many ACKs to delay: limit, or twice as many when that is tried.
func (q *QueuePair) wanted() int {
	if q.untilProbe < 0 {
		return 2 * q.limit
	}
	return q.limit
}

// raiseLimit records that the peer continued to send with fewer ACKs than before. The next try comes soon
// only if the number is larger than every number that made the peer stop.
func (q *QueuePair) raiseLimit() {
	if q.limit = q.pending; q.limit >= q.failedLimit {
		q.failedLimit, q.interval = 0, firstTry
	}
	q.untilProbe = q.interval
}

// HasDeferredACKs reports whether ACKs are delayed.
func (e *Engine) HasDeferredACKs() bool { return e.lists[holding].n > 0 }

// Release makes the next Send send all delayed ACKs. The caller calls it when no packet has arrived
// for a while.
func (e *Engine) Release() {
	for l := &e.lists[holding]; l.n > 0; {
		if q := l.next(); q.holds() {
			q.flushIdle()
		}
	}
}

// FlushACKs releases the ACKs that were already delayed at its previous call, and reports whether
// there were any. So it bounds the delay of a queue pair while others keep the device busy. A peer
// that has sent since then is slow and has not stopped, so ackCoalescing learns nothing from it.
func (e *Engine) FlushACKs() (some bool) {
	l := &e.lists[holding]
	for range l.n {
		switch q := l.next(); {
		case !q.holds():
		case q.pendingAtFlush == 0:
			q.pendingAtFlush = q.pending
			l.add(q)
		case q.pending > q.pendingAtFlush:
			q.wasIdle, some = false, true
			q.acknowledge()
		default:
			q.flushIdle()
			some = true
		}
	}
	return some
}

// flushIdle releases the delayed ACKs. The first time, the peer may just have had nothing left to send.
// If it happens twice in a row, or during a try with at least
// limit ACKs delayed, the peer has stopped.
func (q *QueuePair) flushIdle() {
	if q.wasIdle || q.untilProbe < 0 && q.pending >= q.limit {
		q.failedLimit, q.interval = max(q.pending+1, q.wanted()), min(2*q.interval, lastTry)
		q.limit, q.untilProbe = max(1, q.pending/2), q.interval
	}
	q.wasIdle = true
	q.acknowledge()
}

// repeated acknowledges a packet that was received before. A peer that retransmits packets which
// are not acknowledged yet has not continued to send.
func (q *QueuePair) repeated() {
	if q.holds() {
		q.flushIdle()
		return
	}
	q.acknowledge()
}

// holds reports whether ACKs are delayed and the next Send does not send them.
func (q *QueuePair) holds() bool { return q.pending > 0 && !q.ack }
