package etcd

import (
	"cmp"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/cluster"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/etcdserver"
)

// setting returns a number from the environment.
func setting(t *testing.T, name string, otherwise int) int {
	t.Helper()
	n, err := strconv.Atoi(cmp.Or(os.Getenv(name), strconv.Itoa(otherwise)))
	if err != nil || n < 2 {
		t.Fatalf("%s=%s: it must be a number from 2 up", name, os.Getenv(name))
	}
	return n
}

// processorTime is what a process has used: /proc/PID/stat, utime and stime in ticks of 10 ms.
func processorTime(t *testing.T, pid int) time.Duration {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	testenv.Must(t, err)
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+2:]))
	user, err1 := strconv.Atoi(fields[11])
	system, err2 := strconv.Atoi(fields[12])
	testenv.Must(t, cmp.Or(err1, err2))
	return time.Duration(user+system) * 10 * time.Millisecond
}

// resident is the memory of a process in bytes.
func resident(t *testing.T, pid int) (n uint64) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	testenv.Must(t, err)
	for line := range strings.Lines(string(text)) {
		if rest, is := strings.CutPrefix(line, "VmRSS:"); is {
			if _, err := fmt.Sscan(rest, &n); err != nil {
				t.Fatal(err)
			}
		}
	}
	return n << 10
}

// own is what this process has used.
func own(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	testenv.Must(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// memory is what the Go runtime of this process has in use, after a collection.
func memory() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}

// TestDaemons: many daemons register in one etcd, and each follows two others. It reports how long until all know their
// peers, what etcd and each client take while nothing happens, how long a move takes to be known, and how long until
// all are registered again after etcd was away for two leases. UNIFIEDD_DAEMONS says how many (20), UNIFIEDD_LEASE their
// lease in seconds (2), and UNIFIEDD_SECONDS how long the calm is measured (2).
func TestDaemons(t *testing.T) {
	testenv.OnMachine(t, "etcd")
	testenv.Long(t, "it measures")
	n, hold, span := setting(t, "UNIFIEDD_DAEMONS", 20), time.Duration(setting(t, "UNIFIEDD_LEASE", 2))*time.Second, time.Duration(setting(t, "UNIFIEDD_SECONDS", 2))*time.Second
	s := etcdserver.Start(t, etcdserver.Options{})
	before := memory()
	begun := time.Now()
	var all []*member
	var places []*cluster.Place
	for i := range n {
		c := config(s, fmt.Sprintf("host-%d", i))
		c.Lease = hold
		m := join(t, c, fmt.Sprintf("10.%d.%d.1:7471", i/256, i%256))
		for _, peer := range []int{(i + 1) % n, (i + 7) % n} {
			places = append(places, place(t, m, fmt.Sprintf("host-%d/log", peer)))
		}
		all = append(all, m)
	}
	for i, p := range places {
		peer := (i/2 + []int{1, 7}[i%2]) % n
		finds(t, p, fmt.Sprintf("10.%d.%d.1:7471", peer/256, peer%256))
	}
	t.Logf("%d daemons, lease %v: all have found their peers after %v", n, hold, time.Since(begun).Round(time.Millisecond))

	time.Sleep(hold) // the connections are made
	server, clients, from := processorTime(t, s.PID()), own(t), time.Now()
	time.Sleep(span)
	took := time.Since(from)
	server, clients = processorTime(t, s.PID())-server, own(t)-clients
	t.Logf("in %v of calm: etcd %.2f %% of a processor and %d MiB; each client %.4f %% and %d KiB", took.Round(time.Millisecond),
		100*server.Seconds()/took.Seconds(), resident(t, s.PID())>>20, 100*clients.Seconds()/took.Seconds()/float64(n), (memory()-before)/uint64(n)>>10)

	var moves []time.Duration
	for i := range min(n, 10) {
		to := fmt.Sprintf("10.9.9.%d:7471", i+1)
		all[i].address.Store(&to)
		moves = append(moves, finds(t, places[2*((i+n-1)%n)], to))
	}
	slices.Sort(moves)
	t.Logf("a flow at another address is known after %v in the middle, %v at most", moves[len(moves)/2].Round(time.Millisecond), moves[len(moves)-1].Round(time.Millisecond))

	again(t, s, all, hold)
}

// again has etcd go away for two leases, and reports how long until all daemons are registered again.
func again(t *testing.T, s *etcdserver.Server, all []*member, hold time.Duration) {
	t.Helper()
	s.Kill()
	clients, from := own(t), time.Now()
	time.Sleep(2 * hold)
	clients = own(t) - clients
	for _, m := range all {
		m.is(t, "the state to say that etcd is away", func(s *cluster.State) bool { return !s.Up && !s.Registered })
	}
	t.Logf("while etcd is away: each client %.4f %% of a processor", 100*clients.Seconds()/time.Since(from).Seconds()/float64(len(all)))
	s.Again(t)
	begun := time.Now()
	for _, m := range all {
		m.registered(t)
	}
	t.Logf("after etcd is back, all are registered again after %v", time.Since(begun).Round(time.Millisecond))
}
