package stage

import (
	"errors"
	"fmt"
)

// Step is one change of a packet. Exactly one of its fields is set.
type Step struct {
	Set       *Set
	Sequence  *Sequence
	Timestamp *Timestamp
}

// Chain applies steps to packets. Make it with [New].
type Chain struct {
	steps []step
}

// step is a compiled Step.
type step struct {
	kind   kind
	set    *setter
	offset int
	number uint64 // of the last packet that was counted
	counts counters
}

type kind uint8

const (
	kindSet kind = iota
	kindSequence
	kindTimestamp
)

func (k kind) String() string { return [...]string{"set", "sequence", "timestamp"}[k] }

// New makes a chain that applies the steps in this order. Without steps it changes nothing.
func New(steps []Step) (*Chain, error) {
	c := &Chain{steps: make([]step, len(steps))}
	for i := range steps {
		if err := c.steps[i].compile(&steps[i]); err != nil {
			return nil, fmt.Errorf("stage %d: %w", i+1, err)
		}
	}
	return c, nil
}

func (s *step) compile(from *Step) (err error) {
	n := 0
	if from.Set != nil {
		n++
		s.kind = kindSet
		s.set, err = from.Set.compile()
	}
	if from.Sequence != nil {
		n++
		s.kind, s.offset = kindSequence, from.Sequence.Offset
		err = checkOffset("sequence", s.offset)
	}
	if from.Timestamp != nil {
		n++
		s.kind, s.offset = kindTimestamp, from.Timestamp.Offset
		err = checkOffset("timestamp", s.offset)
	}
	if n != 1 {
		return errors.New("exactly one of set, sequence and timestamp is needed")
	}
	return err
}

// Apply changes a packet in place. packet begins with the Ethernet header. If the packet has several frames,
// packet is the first of them, which has the headers. now is in nanoseconds since 1970.
func (c *Chain) Apply(packet []byte, now uint64) {
	if len(c.steps) == 0 {
		return
	}
	v := look(packet) // no step moves a header
	for i := range c.steps {
		c.steps[i].apply(packet, &v, now)
	}
}

func (s *step) apply(p []byte, v *view, now uint64) {
	switch s.kind {
	case kindSet:
		s.set.apply(p, v, &s.counts)
	case kindTimestamp:
		s.counts.count(stamp(p, v, s.offset, now))
	case kindSequence:
		r := stamp(p, v, s.offset, s.number+1)
		if r == Changed {
			s.number++
		}
		s.counts.count(r)
	}
}

// Stats say what each step did, in their order. Any goroutine may call it.
func (c *Chain) Stats() []StepStats {
	all := make([]StepStats, len(c.steps))
	for i := range c.steps {
		all[i] = c.steps[i].counts.stats(c.steps[i].kind.String())
	}
	return all
}
