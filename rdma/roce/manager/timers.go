package manager

import "container/heap"

// timers are the connections with a deadline, the first in front.
type timers []*connection

func (t timers) Len() int           { return len(t) }
func (t timers) Less(i, j int) bool { return t[i].deadline < t[j].deadline }
func (t timers) Swap(i, j int) {
	t[i], t[j] = t[j], t[i]
	t[i].at, t[j].at = i, j
}

// Push is for package heap.
func (t *timers) Push(x any) {
	c := x.(*connection)
	c.at = len(*t)
	*t = append(*t, c)
}

// Pop is for package heap.
func (t *timers) Pop() any {
	last := len(*t) - 1
	c := (*t)[last]
	(*t)[last] = nil
	*t = (*t)[:last]
	c.at = -1
	return c
}

// set gives a connection another deadline; never takes it out.
func (t *timers) set(c *connection, at instant) {
	c.deadline = at
	switch {
	case at == never && c.at >= 0:
		heap.Remove(t, c.at)
	case at == never:
	case c.at >= 0:
		heap.Fix(t, c.at)
	default:
		heap.Push(t, c)
	}
}

// first is when the first is due.
func (t timers) first() instant {
	if len(t) == 0 {
		return never
	}
	return t[0].deadline
}
