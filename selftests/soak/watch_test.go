package soak

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/selftests/daemon"
)

// watch polls the daemon's status and checks an invariant: each frame has one owner.
type watch struct {
	t       *testing.T
	daemon  *daemon.Daemon
	once    sync.Once
	stop    chan struct{}
	done    chan struct{}
	samples uint64 // valid once done is closed
}

// sampleEvery is the poll interval.
const sampleEvery = 250 * time.Millisecond

func newWatch(t *testing.T, d *daemon.Daemon) *watch {
	t.Helper()
	w := &watch{t: t, daemon: d, stop: make(chan struct{}), done: make(chan struct{})}
	go w.run()
	t.Cleanup(func() { w.halt() })
	return w
}

func (w *watch) run() {
	defer close(w.done)
	for tick := time.NewTicker(sampleEvery); ; {
		select {
		case <-w.stop:
			tick.Stop()
			return
		case <-w.daemon.Exited:
			w.t.Errorf("the daemon has ended: %v\n%s", w.daemon.Err, w.daemon.Log)
			return
		case <-tick.C:
		}
		s, err := w.daemon.Status()
		if err != nil {
			w.t.Errorf("status: %v", err)
			continue
		}
		w.samples++
		if n := owned(&s); n != s.Region.Frames {
			w.t.Errorf("the owners have %d frames of %d: %v", n, s.Region.Frames, s.Region.Owners)
		}
	}
}

// halt ends the watch and returns how many samples it took.
func (w *watch) halt() uint64 {
	w.once.Do(func() { close(w.stop) })
	<-w.done
	return w.samples
}

// owned returns how many frames have an owner.
func owned(s *status.Daemon) (n int64) {
	for _, k := range s.Region.Owners {
		n += k
	}
	return n
}

// use is a daemon's use of resources.
type use struct {
	goroutines, threads, fds int
	heap                     int64 // bytes of Go objects in use
	private                  int64 // bytes of private memory, without huge pages
}

func (u use) String() string {
	return fmt.Sprintf("%d goroutines, %d threads, %d descriptors, %.1f MiB of objects, %.1f MiB of private memory", u.goroutines, u.threads, u.fds,
		float64(u.heap)/(1<<20), float64(u.private)/(1<<20))
}

// measure reads a daemon's use of resources.
func measure(t *testing.T, d *daemon.Daemon, pid int) (u use) {
	t.Helper()
	text, err := d.Page("/metrics")
	testenv.Must(t, err)
	metric := func(name string) float64 {
		_, rest, ok := strings.Cut(text, "\n"+name+" ")
		word, _, _ := strings.Cut(rest, "\n")
		v, err := strconv.ParseFloat(word, 64)
		if !ok || err != nil {
			t.Fatalf("the metric %s is %q", name, word)
		}
		return v
	}
	u.goroutines, u.threads = int(metric("go_goroutines")), int(metric("go_threads"))
	u.heap = int64(metric("go_memstats_heap_alloc_bytes"))
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	testenv.Must(t, err)
	u.fds, u.private = len(fds), private(t, pid)
	return u
}

// private is RssAnon of a process.
func private(t *testing.T, pid int) int64 {
	t.Helper()
	f, err := os.Open(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	testenv.Must(t, err)
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if words := strings.Fields(lines.Text()); len(words) == 3 && words[0] == "RssAnon:" {
			kib, err := strconv.ParseInt(words[1], 10, 64)
			testenv.Must(t, err)
			return kib << 10
		}
	}
	t.Fatal("the kernel does not say RssAnon")
	return 0
}
