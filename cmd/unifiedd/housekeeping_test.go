package main

import (
	"fmt"
	"os"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/selftests/daemon"
)

// TestHousekeeping: only a worker that spins may run on its CPU. The other threads of the daemon have the other CPUs.
func TestHousekeeping(t *testing.T) {
	testenv.Root(t)
	var may, alone unix.CPUSet
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
	alone.Set(cpu)
	p := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	d := daemon.Launch(t, testenv.Build(t, "cmd/unifiedd"), &p.B, t.TempDir(), fmt.Sprintf(`
region: {size: 16MiB, pages: ordinary}
workers: [{name: spins, wait: spin, cpu: %d}, {name: sleeps}]
flows:
  - {name: all, worker: spins, from: {interface: %s, ring: 64}, to: {discard: true}}
`, cpu, p.B.Ifname))
	d.Begun(t)
	s, err := d.Status()
	if err != nil {
		t.Fatal(err)
	}
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", s.PID))
	if err != nil {
		t.Fatal(err)
	}
	spins, others := 0, 0
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
		case on == alone:
			spins++
		case on.IsSet(cpu):
			t.Errorf("thread %d may run on CPU %d, on which a worker spins", id, cpu)
		default:
			others++
		}
	}
	if spins != 1 || others < 3 {
		t.Errorf("%d threads are on CPU %d alone, %d on others", spins, cpu, others)
	}
}
