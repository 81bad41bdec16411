package flows

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/unifiedd/unifiedd/flows/pipeline"
	"github.com/unifiedd/unifiedd/flows/status"
)

// halts are the kill switches by the names of flows. A switch stays as it is while flows stop, start and change.
type halts struct {
	mu  sync.Mutex
	all map[string]*pipeline.Halt
}

// halt returns the kill switch of a flow.
func (d *Daemon) halt(name string) *pipeline.Halt {
	d.halts.mu.Lock()
	defer d.halts.mu.Unlock()
	h := d.halts.all[name]
	if h == nil {
		if d.halts.all == nil {
			d.halts.all = map[string]*pipeline.Halt{}
		}
		h = &pipeline.Halt{}
		d.halts.all[name] = h
	}
	return h
}

// AllOrders stands for all flows that send orders.
const AllOrders = "all"

// orderFlows returns the flow of a name, or all flows that send orders.
func (d *Daemon) orderFlows(name string) (all []*Flow, err error) {
	for _, f := range d.Flows() {
		if f.sendsOrders() && (name == AllOrders || name == f.Name()) {
			all = append(all, f)
		}
	}
	if all != nil {
		return all, nil
	}
	if name == AllOrders {
		return nil, errors.New("no flow sends orders")
	}
	f, err := d.Flow(name)
	if err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("flow %s sends no orders", f.Name())
}

// sendsOrders reports whether the flow sends orders. Any goroutine may call it.
func (f *Flow) sendsOrders() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.config.To.Order != nil
}

// StopOrders turns the kill switch of a flow on, or those of all flows with AllOrders. When it returns, no order leaves
// any more that has not left before. The kernel may still send again what is not acknowledged. If Unsent of an answer
// is not 0, the kernel or the interface has taken that many orders and could not send them within a second: they leave
// when the exchange or the interface takes them.
//
// The switch stays on until ResumeOrders, also over reloads and restarts of the flow. Any goroutine may call it.
func (d *Daemon) StopOrders(name string) ([]status.OrderStop, error) {
	all, err := d.orderFlows(name)
	if err != nil {
		return nil, err
	}
	for _, f := range all {
		f.halt.Stop()
	}
	var answers []status.OrderStop
	for _, f := range all {
		unsent, err := f.awaitHalt()
		if err != nil {
			return answers, err
		}
		d.options.Log.Warn("orders are stopped", "flow", f.Name(), "held", f.halt.Held(), "unsent", unsent)
		answers = append(answers, status.OrderStop{Flow: f.Name(), Stopped: true, Held: f.halt.Held(), Unsent: unsent})
	}
	return answers, nil
}

// ResumeOrders turns the kill switch off. Orders that were held are refused already, and do not leave.
func (d *Daemon) ResumeOrders(name string) ([]status.OrderStop, error) {
	all, err := d.orderFlows(name)
	if err != nil {
		return nil, err
	}
	var answers []status.OrderStop
	for _, f := range all {
		f.halt.Resume()
		d.options.Log.Warn("orders may leave again", "flow", f.Name(), "held", f.halt.Held())
		answers = append(answers, status.OrderStop{Flow: f.Name(), Held: f.halt.Held()})
	}
	return answers, nil
}

// haltTime is how long StopOrders waits until the kernel has sent what it has taken.
const haltTime = time.Second

// awaitHalt waits until the worker has seen the switch, and the kernel has sent what it had taken.
func (f *Flow) awaitHalt() (unsent uint64, err error) {
	if f.running() == nil {
		return 0, nil
	}
	// The worker is between two rounds here, and reads the switch before each order.
	if err := f.worker.Do(func() error { return nil }); err != nil {
		return 0, err
	}
	_, before := f.halt.Unsent()
	for end := time.Now().Add(haltTime); ; time.Sleep(100 * time.Microsecond) {
		orders, calls := f.halt.Unsent()
		late := time.Now().After(end)
		if calls >= before+2 && orders == 0 || late { // a whole round has passed
			return uint64(max(0, orders)), nil
		}
		if f.running() == nil {
			return 0, nil
		}
	}
}
