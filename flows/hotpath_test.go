package flows

import (
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// bench is an opened flow that the test itself polls.
type bench struct {
	*networkStorage
	lab    *lab
	sender *testenv.Sender
}

// newBench opens a flow and starts its interface; no worker and no watcher runs.
func newBench(t testing.TB, layout string) *bench {
	t.Helper()
	testenv.Root(t)
	testenv.HugePages(t, 100<<20)
	l := joined(t, testenv.PairOptions{NoAddresses: true})
	processors := runtime.GOMAXPROCS(0)
	t.Cleanup(func() { runtime.GOMAXPROCS(processors) })
	runtime.LockOSThread() // the block queue belongs to the thread that first polls it
	t.Cleanup(runtime.UnlockOSThread)
	c := l.parsed(t, l.defaults(layout))
	c.Flows[0].To.Segment.Size = 1 << 30
	c.Flows[0].To.Prepare = config.PrepareAllocate
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	d, err := Open(c, Options{Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	b := &bench{lab: l}
	var r run
	l.B.Do(t, func() { r, err = d.Flows()[0].open() })
	if err != nil {
		t.Fatal(err)
	}
	b.networkStorage = r.(*networkStorage)
	t.Cleanup(func() { b.end(t) })
	if err := b.net.Start(); err != nil {
		t.Fatal(err)
	}
	l.Carry(t)
	b.sender = testenv.NewSender(t, &l.A)
	return b
}

// end drains and releases the flow as its watcher would.
func (b *bench) end(t testing.TB) {
	t.Helper()
	if err := b.net.Stop(); err != nil {
		t.Error(err)
	}
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		b.Poll(time.Now())
		if done, err := b.sink.close(time.Now()); done || err != nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if err := b.disk.queue.Close(); err != nil {
		t.Error(err)
	}
	if err := b.networkStorage.close(); err != nil {
		t.Error(err)
	}
	if why := b.failed.Load(); why != nil {
		t.Error(*why)
	}
}

// TestPollAllocatesNothing polls a flow under traffic: receiving, laying out,
// writing, flushing and statistics make no garbage.
func TestPollAllocatesNothing(t *testing.T) {
	for _, layout := range layouts {
		t.Run(layout, func(t *testing.T) {
			testenv.Leaks(t)
			b := newBench(t, layout)
			frames := testenv.Stream(&b.lab.A, &b.lab.B, 9, 0, 64, 700)
			noted := &statistics{parts: [][]byte{make([]byte, 0, statisticsRoom)}}
			round := func() {
				noted.next = 0
				b.notes.Store(noted)
				for _, f := range frames {
					if _, err := b.sender.Send(f); err != nil {
						t.Fatal(err)
					}
				}
				for range 4 {
					b.Poll(time.Now())
				}
			}
			for range 200 { // the first segment is taken, every slice has grown
				round()
			}
			before := b.places.packetsWritten()
			if n := testing.AllocsPerRun(500, round); n >= 1 {
				t.Errorf("polling allocates %v times for each %d packets", n, len(frames))
			}
			if b.failed.Load() != nil || b.places.packetsWritten() < before+1000 {
				t.Errorf("%d packets were written meanwhile: the test shows nothing (%v)", b.places.packetsWritten()-before, b.failed.Load())
			}
		})
	}
}

// BenchmarkCapture tells what polling costs for each packet, from the ring to the
// disk, without the sender and the kernel's work for it; 64 packets wait whenever
// the flow is polled.
func BenchmarkCapture(b *testing.B) {
	for _, layout := range layouts {
		for _, size := range []int{64, 512, 1024, 1514} {
			b.Run(fmt.Sprintf("%s/%d", layout, size), func(b *testing.B) { benchmarkCapture(b, layout, size) })
		}
	}
}

func benchmarkCapture(b *testing.B, layout string, size int) {
	x := newBench(b, layout)
	frames := testenv.Stream(&x.lab.A, &x.lab.B, 9, 0, 64, size)
	spent, most := time.Duration(0), uint64(700<<20)/uint64(size+600) // the segment's room
	before := x.packets.Load()
	b.ReportAllocs()
	b.ResetTimer()
	for done := 0; done < b.N && x.packets.Load() < most; done += len(frames) {
		for _, f := range frames {
			if _, err := x.sender.Send(f); err != nil {
				b.Fatal(err)
			}
		}
		begin := time.Now()
		for x.Poll(time.Now()) {
		}
		spent += time.Since(begin)
	}
	b.StopTimer()
	if n := x.packets.Load() - before; n > 0 {
		b.ReportMetric(float64(spent.Nanoseconds())/float64(n), "ns/packet")
	}
}
