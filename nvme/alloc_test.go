package nvme

import (
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
)

// TestAllocations: the verbs do not allocate, with single or chained frames, with or without a
// wait, on success and failure, with FD in use or not, with registered memory or without.
func TestAllocations(t *testing.T) {
	for _, without := range []feature{0, FeatureDeviceMemory} {
		allocations(t, false, without)
		allocations(t, true, without)
	}
}

func allocations(t *testing.T, watched bool, without feature) {
	t.Helper()
	r := newRig(t, umem.Config{}, Config{}.Without(without))
	_, i := r.open(fileTarget(t, 1<<20))
	if watched && r.queue.FD() < 0 {
		t.Fatal("no descriptor")
	}
	fs := r.take(16)
	back := make([]umem.Frame, 16)
	round := func(wait func() error, in, out func([]umem.Frame) int) {
		in(fs)
		for n := 0; n < len(fs); {
			testenv.Must(t, wait())
			n += out(back)
		}
	}
	var done [1]FlushResult
	for name, f := range map[string]func(){
		"writes": func() { round(r.queue.Kick, r.queue.Send, r.queue.Reap) },
		"reads":  func() { round(func() error { return r.queue.Wait(time.Second) }, r.queue.Supply, r.queue.Recv) },
		"flushes": func() {
			for r.queue.Flush(i, 1); r.queue.Flushed(done[:]) == 0; {
				r.queue.Wait(-1)
			}
		},
	} {
		for _, chain := range []bool{false, true} {
			for k := range fs {
				r.at(fs[k], i, uint64(k)*4096)
				fs[k].Options = 0
			}
			if chain {
				chained(fs)
			} else {
				r.at(fs[3], i, 100) // fails
			}
			if n := testing.AllocsPerRun(20, f); n != 0 {
				t.Errorf("%s, chained %t, watched %t, without %b: %v allocations", name, chain, watched, without, n)
			}
		}
	}
	r.hands.Give(fs)
}

// TestConfig: Open refuses values outside the limits of the configuration.
func TestConfig(t *testing.T) {
	r := newRig(t, umem.Config{}, Config{})
	if l := r.queue.Limits(); l != (umem.Limits{Message: maxMessage, Frames: 64, Supply: 64, Send: 64}) {
		t.Errorf("limits by default: %+v", l)
	}
	if _, err := Open(Config{}); err == nil {
		t.Error("a queue without a worker was opened")
	}
	for _, c := range []Config{{Depth: -1}, {Depth: maxDepth + 1}, {Frames: 8}, {Frames: maxFrames + 1}, {Pieces: -1}, {Pieces: maxPieces + 1}, {Targets: -1}, {Targets: maxTargets + 1}} {
		c.Worker = r.hands
		if q, err := Open(c); err == nil {
			t.Errorf("%+v was opened", c)
			q.Close()
		}
	}
	for _, c := range []Config{{Depth: 1}, {Depth: maxDepth, Frames: maxFrames, Pieces: maxPieces, Targets: maxTargets}} {
		r.check(r.queue.Close())
		r.reopen(c)
		_, i := r.open(fileTarget(t, 1<<20))
		fs := r.take(1)
		r.at(fs[0], i, 0)
		r.hands.Give(r.write(fs))
	}
}

// TestRegistered: the region lists the queue as registered while it is open.
func TestRegistered(t *testing.T) {
	r := newRig(t, umem.Config{}, Config{Name: "disk 1"})
	if got := r.region.Registered(); len(got) != 1 || got[0] != "io_uring of disk 1" {
		t.Errorf("registered: %v", got)
	}
	if r.region.Close() == nil {
		t.Fatal("the region was closed under the queue")
	}
	r.check(r.queue.Close())
	if got := r.region.Registered(); len(got) != 0 {
		t.Errorf("registered after Close: %v", got)
	}
}

// TestStatsElsewhere: another goroutine can read the counters while the queue works.
func TestStatsElsewhere(t *testing.T) {
	r := newRig(t, umem.Config{}, Config{})
	_, i := r.open(fileTarget(t, 1<<20))
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for last := uint64(0); ; {
			s := r.queue.Stats()
			if s.Writes < last {
				t.Errorf("%d writes after %d", s.Writes, last)
			}
			last = s.Writes
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	fs := r.take(8)
	for range 200 {
		for k, f := range fs {
			r.at(f, i, uint64(k)*4096)
		}
		fs = r.write(fs)
	}
	close(stop)
	<-done
	r.hands.Give(fs)
	if s := r.queue.Stats(); s.Writes != 1600 || s.InFlight != 0 {
		t.Errorf("%+v", s)
	}
}
