package flows

import (
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/unifiedd/unifiedd/flows/pipeline"
	"github.com/unifiedd/unifiedd/flows/status"
)

// halts are the kill switches by the names of flows. A switch stays as it is while flows stop, start and change, and when
// the daemon comes back.
type halts struct {
	mu    sync.Mutex
	all   map[string]*pipeline.Halt
	path  string // of the file with state; empty: it is not kept
	state haltState
	err   error // why the state is not in the file, or could not be read
}

// open reads the state of the switches.
func (h *halts) open(path string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all, h.path = map[string]*pipeline.Halt{}, path
	h.state, h.err = readHalts(path)
	return h.err
}

// halt returns the kill switch of a flow.
func (d *Daemon) halt(name string) *pipeline.Halt {
	d.halts.mu.Lock()
	defer d.halts.mu.Unlock()
	h := d.halts.all[name]
	if h == nil {
		h = &pipeline.Halt{}
		d.halts.all[name] = h
		if d.halts.state.stopped(name) {
			h.Stop()
		}
	}
	return h
}

// turn turns the switch of a flow, or all of them: also of flows that there are not yet.
func (h *halts) turn(name string, on bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.state.set(name, on)
	for flow, one := range h.all {
		switch {
		case name != AllOrders && name != flow:
		case on:
			one.Stop()
		default:
			one.Resume()
		}
	}
}

// keep writes the state to the file.
func (h *halts) keep() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err = h.state.write(h.path); h.err != nil {
		h.err = fmt.Errorf("the kill switch is turned, and its state is not kept over a restart of the daemon: %w (see control.state)", h.err)
	}
	return h.err
}

// status describes the switches.
func (h *halts) status() *status.OrdersStopped {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := &status.OrdersStopped{All: h.state.All, Flows: maps.Clone(h.state.Flows), File: h.path}
	if h.err != nil {
		s.Error = h.err.Error()
	}
	return s
}

// AllOrders stands for all flows that send orders.
const AllOrders = "all"

// orderFlows returns the flow of a name, or all flows that send orders, which may be none.
func (d *Daemon) orderFlows(name string) (all []*Flow, err error) {
	for _, f := range d.Flows() {
		if f.sendsOrders() && (name == AllOrders || name == f.Name()) {
			all = append(all, f)
		}
	}
	if all != nil || name == AllOrders {
		return all, nil
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
// The switch stays on until ResumeOrders, also over reloads and restarts of the flow and of the daemon. With AllOrders it is
// on for flows, too, that a reload adds, or gives another name. An error with answers says that the state is not in
// Options.Halts. Any goroutine may call it.
func (d *Daemon) StopOrders(name string) ([]status.OrderStop, error) {
	all, err := d.orderFlows(name)
	if err != nil {
		return nil, err
	}
	d.halts.turn(name, true)
	var answers []status.OrderStop
	for _, f := range all {
		unsent, err := f.awaitHalt()
		if err != nil {
			return answers, errors.Join(err, d.halts.keep())
		}
		d.options.Log.Warn("orders are stopped", "flow", f.Name(), "held", f.halt.Held(), "unsent", unsent)
		answers = append(answers, status.OrderStop{Flow: f.Name(), Stopped: true, Held: f.halt.Held(), Unsent: unsent})
	}
	return answers, d.halts.keep() // behind the switch: a disk may hang
}

// ResumeOrders turns the kill switch of a flow off, or with AllOrders all of them. Orders that were held are refused already, and do not leave.
func (d *Daemon) ResumeOrders(name string) ([]status.OrderStop, error) {
	all, err := d.orderFlows(name)
	if err != nil {
		return nil, err
	}
	d.halts.turn(name, false)
	var answers []status.OrderStop
	for _, f := range all {
		d.options.Log.Warn("orders may leave again", "flow", f.Name(), "held", f.halt.Held())
		answers = append(answers, status.OrderStop{Flow: f.Name(), Held: f.halt.Held()})
	}
	return answers, d.halts.keep()
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
