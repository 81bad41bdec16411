package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestHousekeeping: only a worker that spins may run on its CPU. The other threads of the daemon have the other CPUs.
func TestHousekeeping(t *testing.T) {
	testenv.Root(t)
	var may unix.CPUSet
	if err := unix.SchedGetaffinity(0, &may); err != nil {
		t.Fatal(err)
	}
	if may.Count() < 2 {
		t.Fatal("a worker and other threads need a CPU each")
	}
	cpu := 0
	for !may.IsSet(cpu) {
		cpu++
	}
	p := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	dir := t.TempDir()
	file := filepath.Join(dir, "test.yaml")
	write(t, file, fmt.Appendf(nil, `
control: {socket: %s/control.sock}
region: {size: 16MiB, pages: ordinary}
workers: [{name: spins, wait: spin, cpu: %d}, {name: sleeps}]
flows:
  - {name: all, worker: spins, from: {interface: %s, ring: 64}, to: {discard: true}}
`, dir, cpu, p.B.Ifname))
	cmd := commandAsIs(t, &p.B, nil, "run", "-c", file)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_, pid := own(t, cmd)
	ended := false
	t.Cleanup(func() {
		if !ended {
			_ = unix.Kill(pid, unix.SIGKILL)
			_ = cmd.Wait()
		}
	})
	testenv.Wait(t, testenv.Within(20*time.Second), "the worker", func() bool { alone, _, _ := threadsOn(t, pid, cpu); return alone == 1 })
	alone, with, without := threadsOn(t, pid, cpu)
	if alone != 1 || with != 0 || without < 3 {
		t.Errorf("%d threads are on CPU %d alone, %d may run on it and on others, %d on others only", alone, cpu, with, without)
	}
	if err := unix.Kill(pid, unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	ended = true
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// threadsOn counts the threads of a process that may run on a CPU alone, on that and on others, and on others only.
func threadsOn(t *testing.T, pid, cpu int) (alone, with, without int) {
	t.Helper()
	var one unix.CPUSet
	one.Set(cpu)
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, thread := range threads {
		id, err := strconv.Atoi(thread.Name())
		if err != nil {
			t.Fatal(err)
		}
		var on unix.CPUSet
		switch err := unix.SchedGetaffinity(id, &on); {
		case err == unix.ESRCH: // it has ended
		case err != nil:
			t.Fatal(err)
		case on == one:
			alone++
		case on.IsSet(cpu):
			with++
		default:
			without++
		}
	}
	return alone, with, without
}
