package worker

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/internal/numa"
)

// pin keeps the thread on the configured CPU, or on the CPUs of the node that the process may use.
// It ignores a node without CPUs for it: other workers may have them all.
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
	if cpus = slices.DeleteFunc(cpus, func(cpu int) bool { return !w.others.IsSet(cpu) }); len(cpus) == 0 {
		w.node = nil
		return nil
	}
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

// KeepOff keeps all threads of the process off some CPUs, those that it starts later too: a thread begins with the CPUs of
// the one that starts it. It does nothing if no other CPU would be left. undo lets them run everywhere again.
func KeepOff(cpus []int) (undo func() error, err error) {
	var all, rest unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return nil, fmt.Errorf("ask which CPUs this process may use: %w", err)
	}
	rest = all
	for _, cpu := range cpus {
		rest.Clear(cpu)
	}
	if rest == all || rest.Count() == 0 {
		return func() error { return nil }, nil
	}
	return func() error { return moveThreads(&rest, &all) }, moveThreads(&all, &rest)
}

// moveThreads has the threads of the process that run on some CPUs run on others, until no thread is left that one of them
// has started meanwhile.
func moveThreads(from, to *unix.CPUSet) error {
	for moved := true; moved; {
		moved = false
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return fmt.Errorf("list the threads of this process: %w", err)
		}
		for _, one := range threads {
			id, err := strconv.Atoi(one.Name())
			if err != nil {
				return fmt.Errorf("list the threads of this process: %w", err)
			}
			var on unix.CPUSet
			if unix.SchedGetaffinity(id, &on) != nil || on != *from { // it may have ended
				continue
			}
			err = unix.SchedSetaffinity(id, to)
			if err != nil && !errors.Is(err, unix.ESRCH) && !errors.Is(err, unix.EINVAL) { // EINVAL: the kernel's own, of an io_uring
				return fmt.Errorf("keep thread %d off the CPUs of workers: %w", id, err)
			}
			moved = moved || err == nil
		}
	}
	return nil
}
