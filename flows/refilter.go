package flows

import (
	"fmt"

	"github.com/unifiedd/unifiedd/flows/config"
)

// refilterer is a run whose filter can be another while packets flow.
type refilterer interface {
	refilter(from config.From) error
}

// refilter has a flow that runs go on with the filter of from. Each packet meets the old filter or
// the new one; counters go on. On error the old one stays.
func (f *Flow) refilter(from config.From) error {
	f.starting.Lock()
	defer f.starting.Unlock()
	if from.Filter == f.config.From.Filter {
		return nil
	}
	r, ok := f.running().(refilterer)
	if !ok {
		return fmt.Errorf("change the filter of flow %s: it does not run", f.config.Name)
	}
	if err := r.refilter(from); err != nil {
		return fmt.Errorf("change the filter of flow %s: %w", f.config.Name, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.log.Info("flow goes on with another filter", "filter", from.Filter, "before", f.config.From.Filter, "host_no_longer_sees", unseen(from))
	f.config.From = from
	return nil
}

// refilter exchanges the filter in the program on the interface.
func (n *intake) refilter(from config.From) error {
	if err := checkTakeOver(from); err != nil {
		return err
	}
	expr, err := parseFilter(from.Filter)
	if err != nil {
		return err
	}
	return n.net.SetFilter(expr)
}
