package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/config"
)

// keepOffSpinning keeps the threads of this process off the CPUs on which workers will spin. A worker that spins never leaves its
// CPU by itself, so another thread there would take it for milliseconds. It must be called before there are workers: these
// choose their CPUs themselves, and what other threads begin later stays where those are.
func keepOffSpinning(workers []config.Worker, log *slog.Logger) {
	var may, rest unix.CPUSet
	if err := unix.SchedGetaffinity(0, &may); err != nil {
		log.Warn("other threads may run on the CPUs of workers that spin", "err", err)
		return
	}
	rest = may
	for _, w := range workers {
		if w.Wait == config.WaitSpin && w.CPU != nil {
			rest.Clear(*w.CPU)
		}
	}
	switch {
	case rest == may:
		return
	case rest.Count() == 0:
		log.Warn("workers spin on all CPUs that the daemon may use: its other threads take time from them")
		return
	}
	if err := moveThreads(&rest); err != nil {
		log.Warn("other threads may run on the CPUs of workers that spin", "err", err)
	}
}

// moveThreads lets all threads of the process run only on some CPUs. A thread that begins meanwhile has the CPUs of the one
// that began it, so moveThreads looks again until it finds none that it has to move.
func moveThreads(to *unix.CPUSet) error {
	for moved := true; moved; {
		moved = false
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return fmt.Errorf("list the threads of the process: %w", err)
		}
		for _, t := range threads {
			id, err := strconv.Atoi(t.Name())
			if err != nil {
				return fmt.Errorf("list the threads of the process: %w", err)
			}
			one, err := moveThread(id, to)
			if err != nil && !errors.Is(err, unix.ESRCH) { // else it has ended
				return fmt.Errorf("move thread %d to other CPUs: %w", id, err)
			}
			moved = moved || one
		}
	}
	return nil
}

// moveThread lets one thread run only on some CPUs. It reports whether that is a change.
func moveThread(id int, to *unix.CPUSet) (moved bool, err error) {
	var now unix.CPUSet
	if err := unix.SchedGetaffinity(id, &now); err != nil || now == *to {
		return false, err
	}
	return true, unix.SchedSetaffinity(id, to)
}
