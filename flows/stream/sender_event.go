package stream

import "github.com/unifiedd/unifiedd/rdma"

// FD polls readable when Poll has something to take; -1 without Events, and after Close. It stays the same over connections.
func (s *Sender) FD() int {
	if s.queue == nil {
		return -1
	}
	return s.queue.FD()
}

// arming has a completion queue's descriptor tell of completions, while it is polled by the same thread.
type arming struct {
	armed bool // the queue gives an event at its next completion
}

// again is called when the queue was found empty; came says that it was not before that. It has the queue armed, and reports whether there may be
// something again. Of a queue that is armed and gave nothing since it takes the event of what was polled before it came.
func (a *arming) again(q rdma.CompletionQueue, came bool) (bool, error) {
	events, err := q.Acknowledge()
	if err != nil || a.armed && events == 0 && !came {
		return false, err
	}
	err = q.Arm(false)
	a.armed = err == nil
	return a.armed, err
}

// quiet takes events of a queue that nobody is interested in at the moment.
func (a *arming) quiet(q rdma.CompletionQueue) error {
	if !a.armed {
		return nil
	}
	events, err := q.Acknowledge()
	a.armed = events == 0
	return err
}
