package xdp

import (
	"fmt"

	"github.com/unifiedd/unifiedd/bpf"
)

// Selected is what the selection in force has counted, since it came into force.
type Selected struct {
	Rules []bpf.RuleCounter
	Own   []bpf.OwnCounter // what the user's own program counts
}

// Selected reads the counters of the selection. After Close, or without a program, there are
// none. It may be called from any goroutine.
func (i *Interface) Selected() (s Selected, err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.company.mu.Lock()
	defer i.company.mu.Unlock()
	if !i.listens {
		return i.counted, nil
	}
	if i.closed || i.program == nil {
		return s, nil
	}
	return i.selected()
}

func (i *Interface) selected() (s Selected, err error) {
	if s.Rules, err = i.program.RuleCountersOf(i.seat); err == nil {
		s.Own, err = i.program.OwnCounters()
	}
	if err != nil {
		return s, fmt.Errorf("%s: %w", i.Name(), err)
	}
	return s, nil
}
