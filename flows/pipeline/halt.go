package pipeline

import "sync/atomic"

// Halt is the kill switch of a flow that sends orders. It outlives the runs of the flow, and a reload. Any goroutine
// may use it.
type Halt struct {
	stopped atomic.Bool
	held    atomic.Uint64
	unsent  atomic.Int64
	epoch   atomic.Uint64
}

// Stop turns the switch: an order for which the sink has not yet looked at it does not leave.
func (h *Halt) Stop() {
	if !h.stopped.Swap(true) {
		h.held.Store(0)
	}
}

// Resume lets orders leave again.
func (h *Halt) Resume() { h.stopped.Store(false) }

// Stopped reports whether the switch is on.
func (h *Halt) Stopped() bool { return h.stopped.Load() }

// Hold counts an order that has come while the switch was on. The sink calls it.
func (h *Halt) Hold() { h.held.Add(1) }

// Held returns how many orders were held since the switch was turned last.
func (h *Halt) Held() uint64 { return h.held.Load() }

// SetUnsent says how many orders the kernel or the interface has taken and not transmitted yet. The sink calls it each round
// while the switch is on.
func (h *Halt) SetUnsent(n int) {
	h.unsent.Store(int64(n))
	h.epoch.Add(1)
}

// Unsent returns what SetUnsent said last, and how often it was called.
func (h *Halt) Unsent() (orders int64, calls uint64) { return h.unsent.Load(), h.epoch.Load() }
