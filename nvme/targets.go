package nvme

import (
	"errors"
	"fmt"
)

// place is a target in a queue's table. Masks are alignments less one.
type place struct {
	target     *Target
	offsetMask uint64
	memoryMask uint64
	flying     int
	unfixed    bool  // the kernel takes no registered huge pages for commands of this node
	discards   uint8 // how the kernel is asked to discard on a block device
}

// Add puts a target into the queue's table and returns its number, for
// umem.Side. The kernel keeps the file open until it is removed or the queue
// closed, also when the Target itself is closed.
func (q *Queue) Add(t *Target) (uint32, error) {
	if q.closed {
		return 0, ErrClosed
	}
	for i := range q.targets {
		if q.targets[i].target == nil {
			return uint32(i), q.set(uint32(i), t)
		}
	}
	return 0, fmt.Errorf("add %s to block queue %s: all %d places are taken: open the queue with more Targets", t.path, q.name, len(q.targets))
}

func (q *Queue) set(i uint32, t *Target) error {
	if t.fd < 0 {
		return fmt.Errorf("add %s to block queue %s: it is closed", t.path, q.name)
	}
	if err := q.suits(t); err != nil {
		return fmt.Errorf("add %s to block queue %s: %w", t.path, q.name, err)
	}
	if err := q.ring.setFile(i, int32(t.fd)); err != nil {
		return fmt.Errorf("add %s to block queue %s: %w", t.path, q.name, explainThread(err))
	}
	q.targets[i] = place{target: t, offsetMask: uint64(t.align.Offset) - 1, memoryMask: uint64(t.align.Memory) - 1}
	return nil
}

// suits says why a target cannot be in the queue.
func (q *Queue) suits(t *Target) error {
	switch {
	case t.node != nil && q.ring.wide == 0:
		return errors.New("it is an NVMe node: open the queue with Passthrough")
	case q.ring.polled() && !t.limits.Poll:
		return &NotSupportedError{"polling " + t.path + " for completions",
			"open the queue without Poll; an NVMe disk has it where the module nvme was loaded with poll_queues=1 or more"}
	}
	return nil
}

// Remove takes a target out of the table. It refuses while operations on it are
// in flight.
func (q *Queue) Remove(i uint32) error {
	if q.closed {
		return ErrClosed
	}
	if uint64(i) >= uint64(len(q.targets)) || q.targets[i].target == nil {
		return fmt.Errorf("remove target %d from block queue %s: there is none", i, q.name)
	}
	p := &q.targets[i]
	if p.flying > 0 {
		return fmt.Errorf("remove %s from block queue %s: %d operations are in flight: reap them first", p.target.path, q.name, p.flying)
	}
	if err := q.ring.setFile(i, -1); err != nil {
		return fmt.Errorf("remove %s from block queue %s: %w", p.target.path, q.name, explainThread(err))
	}
	*p = place{}
	return nil
}
