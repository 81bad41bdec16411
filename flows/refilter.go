package flows

import (
	"fmt"
	"reflect"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/xdp"
)

// refilterer is a run whose filter can be another while packets flow.
type refilterer interface {
	refilter(from, before config.From) error
}

// refilter has a flow that runs go on with the filter of from. Each packet meets the old filter or
// the new one; counters go on. On error the old one stays.
func (f *Flow) refilter(from config.From) error {
	f.starting.Lock()
	defer f.starting.Unlock()
	if sameFilter(from, f.config.From) {
		return nil
	}
	r, ok := f.running().(refilterer)
	if !ok {
		return fmt.Errorf("change the filter of flow %s: it does not run", f.config.Name)
	}
	if err := r.refilter(from, f.config.From); err != nil {
		return fmt.Errorf("change the filter of flow %s: %w", f.config.Name, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.log.Info("flow goes on with another filter", "filter", from.Wanted(), "before", f.config.From.Wanted(), "host_no_longer_sees", unseen(from))
	f.config.From = from
	return nil
}

// ranker is a run that may share its interfaces with others.
type ranker interface {
	rerank(rank int) error
}

// rerank changes where among the flows of its interfaces a flow that runs is asked whether it wants a packet.
func (f *Flow) rerank(rank int) error {
	f.starting.Lock()
	defer f.starting.Unlock()
	if r, ok := f.running().(ranker); ok {
		return r.rerank(rank)
	}
	return nil
}

func (n *intake) rerank(rank int) error {
	return n.net.each(func(i *xdp.Interface) error { return i.Rank(rank) })
}

func sameFilter(a, b config.From) bool {
	return a.Filter == b.Filter && a.Object == b.Object && reflect.DeepEqual(a.Rules, b.Rules)
}

// refilter exchanges the filter in the program on the interface.
func (n *intake) refilter(from, before config.From) error {
	if err := checkTakeOver(from); err != nil {
		return err
	}
	return n.net.SetFilter(from, before)
}
