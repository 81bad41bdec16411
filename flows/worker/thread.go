package worker

import (
	"fmt"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/internal/numa"
)

// pin keeps the thread on the configured CPU, or on the CPUs of the node that the process may use.
// It ignores a node without CPUs.
func (w *Worker) pin() error {
	if err := unix.SchedGetaffinity(0, &w.others); err != nil {
		return fmt.Errorf("pin worker %s: ask which CPUs it may use: %w", w.config.Name, err)
	}
	if w.config.CPU != nil {
		return w.pinTo(fmt.Sprintf("CPU %d", *w.config.CPU), []int{*w.config.CPU})
	}
	if w.node == nil {
		return nil
	}
	cpus, err := numa.CPUs(*w.node)
	if err != nil || len(cpus) == 0 {
		w.node = nil
		return nil
	}
	cpus = slices.DeleteFunc(cpus, func(cpu int) bool { return !w.others.IsSet(cpu) })
	return w.pinTo(fmt.Sprintf("NUMA node %d, where the region is", *w.node), cpus)
}

func (w *Worker) pinTo(where string, cpus []int) error {
	w.pinned = new(unix.CPUSet)
	for _, cpu := range cpus {
		w.pinned.Set(cpu)
	}
	if err := unix.SchedSetaffinity(0, w.pinned); err != nil {
		return fmt.Errorf("pin worker %s to %s: %w (is that CPU online and allowed to this process?)", w.config.Name, where, err)
	}
	return nil
}

// yield lets the Go scheduler run, which it demands every 10 ms (quantum).
//
// While a goroutine is locked to its thread, the scheduler must wake another thread that hands the goroutine
// back. That takes 90 µs if it wakes on a CPU that sleeps, and much longer on one that is busy. So a worker that spins is not
// locked meanwhile: nearly always the same thread goes on with it within 10 µs. If it is another one, that becomes the
// worker's thread, which is why the thread is not pinned meanwhile either: the one before may then run on all CPUs, and
// so may one that the scheduler begins meanwhile, which has the CPUs of the thread that begins it.
func (w *Worker) yield() {
	if w.config.Wait != config.WaitSpin || w.all.Bound {
		runtime.Gosched()
		return
	}
	w.setCPUs(&w.others)
	runtime.UnlockOSThread()
	runtime.Gosched()
	runtime.LockOSThread()
	w.setCPUs(w.pinned)
}

// setCPUs has the thread run on some CPUs, if it is pinned. It fails if none of them is online any more, and then the kernel
// lets the thread run on all of them anyway.
func (w *Worker) setCPUs(to *unix.CPUSet) {
	if w.pinned != nil {
		_ = unix.SchedSetaffinity(0, to)
	}
}
