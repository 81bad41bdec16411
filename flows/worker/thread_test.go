package worker

import (
	"os"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// mover is a poller that notes on which threads it runs, and whether they were pinned.
type mover struct {
	cpu      int
	thread   int
	moves    atomic.Int64
	unpinned atomic.Int64
}

func (m *mover) Poll(time.Time) bool {
	if id := unix.Gettid(); id != m.thread {
		m.thread = id
		m.moves.Add(1)
		var on unix.CPUSet
		if err := unix.SchedGetaffinity(0, &on); err != nil || on.Count() != 1 || !on.IsSet(m.cpu) {
			m.unpinned.Add(1)
		}
	}
	return false
}
func (m *mover) FDs(dst []unix.PollFd) []unix.PollFd { return dst }
func (m *mover) Deadline(now time.Time) time.Time    { return now.Add(MaxWait) }

// TestYield: a worker that spins may go to another thread when it yields. It is pinned there, and the thread before may run on
// all CPUs. A poller that is bound to its thread stays on it.
func TestYield(t *testing.T) {
	var may unix.CPUSet
	testenv.Must(t, unix.SchedGetaffinity(0, &may))
	cpu := 0
	for !may.IsSet(cpu) {
		cpu++
	}
	keepBusy(t)
	for _, bound := range []bool{false, true} {
		w, err := New(config.Worker{Name: "test", Wait: config.WaitSpin, CPU: &cpu}, nil)
		testenv.Must(t, err)
		m := &mover{cpu: cpu}
		testenv.Must(t, w.Add(m, Needs{Bound: bound}))
		moved := func() bool { return m.moves.Load() > 3 }
		if bound {
			time.Sleep(500 * time.Millisecond)
		} else {
			for end := time.Now().Add(30 * time.Second); !moved() && time.Now().Before(end); time.Sleep(time.Millisecond) {
			}
		}
		if bound == moved() || bound && m.moves.Load() != 1 {
			t.Errorf("bound is %v, and the poller came to %d threads", bound, m.moves.Load())
		}
		if n := m.unpinned.Load(); n > 0 {
			t.Errorf("on %d threads of %d it was not pinned", n, m.moves.Load())
		}
		if err := w.Do(func() error { w.remove(m); checkOthers(t, &may); return nil }); err != nil {
			t.Error(err)
		}
		testenv.Check(t, w.Close())
		checkOthers(t, &may) // the process's first thread does not end with a worker that came to it
	}
}

// keepBusy gives the scheduler other goroutines to run, so that threads look for work.
func keepBusy(t *testing.T) {
	before := runtime.GOMAXPROCS(runtime.NumCPU() + 2)
	var stop atomic.Bool
	t.Cleanup(func() { stop.Store(true); runtime.GOMAXPROCS(before) })
	for range 4 {
		go func() {
			for !stop.Load() {
				time.Sleep(10 * time.Microsecond)
			}
		}()
	}
}

// checkOthers reports threads, but the calling one, that may not run on all CPUs.
func checkOthers(t *testing.T, all *unix.CPUSet) {
	t.Helper()
	threads, err := os.ReadDir("/proc/self/task")
	testenv.Must(t, err)
	for _, one := range threads {
		id, err := strconv.Atoi(one.Name())
		testenv.Must(t, err)
		var on unix.CPUSet
		if id != unix.Gettid() && unix.SchedGetaffinity(id, &on) == nil && on != *all {
			t.Errorf("thread %d may run on %d CPUs of %d", id, on.Count(), all.Count())
		}
	}
}

// TestKeepOff: all threads keep off the CPU of a worker, those too that begin later, and also while the worker spins and
// yields. Afterwards they may run everywhere again. A process without another CPU stays where it is.
func TestKeepOff(t *testing.T) {
	var all, rest unix.CPUSet
	testenv.Must(t, unix.SchedGetaffinity(0, &all))
	if all.Count() < 2 {
		t.Skip("this process may use one CPU only")
	}
	cpu := 0
	for !all.IsSet(cpu) {
		cpu++
	}
	rest = all
	rest.Clear(cpu)
	keepBusy(t)
	undo, err := KeepOff([]int{cpu})
	testenv.Must(t, err)
	w, err := New(config.Worker{Name: "test", Wait: config.WaitSpin, CPU: &cpu}, nil)
	testenv.Must(t, err)
	m := &mover{cpu: cpu}
	testenv.Must(t, w.Add(m, Needs{}))
	testenv.Wait(t, time.Minute, "the worker to move", func() bool { return m.moves.Load() > 3 })
	const threads = 20 // more, which have begun when undo lists them
	begun, ended := make(chan struct{}), make(chan struct{})
	for range threads {
		go func() {
			runtime.LockOSThread()
			begun <- struct{}{}
			<-ended
		}()
	}
	for range threads {
		<-begun
	}
	nothing, err := KeepOff(allOf(&rest))
	testenv.Must(t, err, nothing())
	testenv.Check(t, w.Do(func() error {
		w.remove(m)
		checkOthers(t, &rest)
		err := undo()
		checkOthers(t, &all)
		return err
	}))
	close(ended)
	testenv.Check(t, w.Close())
}

// allOf returns the CPUs of a set.
func allOf(set *unix.CPUSet) (all []int) {
	for cpu := range 1024 {
		if set.IsSet(cpu) {
			all = append(all, cpu)
		}
	}
	return all
}
