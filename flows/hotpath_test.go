package flows

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/pipeline"
	"github.com/unifiedd/unifiedd/flows/sink/disk"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/pcapng"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/nvme"
)

// bench is an opened flow that the test itself polls.
type bench struct {
	run    *pipeline.Run
	disk   *disk.Writer
	lab    *lab
	sender *testenv.Sender
}

// newBench opens a flow and starts its interface; no worker and no watcher runs.
func newBench(t testing.TB, layout string) *bench {
	t.Helper()
	return newBenchOf(t, func(l *lab) string { return l.defaults(layout) })
}

// newBenchOf is newBench for a flow of another configuration.
func newBenchOf(t testing.TB, text func(*lab) string) *bench {
	t.Helper()
	testenv.Root(t)
	testenv.HugePages(t, 100<<20)
	l := joined(t, testenv.PairOptions{NoAddresses: true})
	processors := runtime.GOMAXPROCS(0)
	t.Cleanup(func() { runtime.GOMAXPROCS(processors) })
	runtime.LockOSThread() // the block queue belongs to the thread that first polls it
	t.Cleanup(runtime.UnlockOSThread)
	c := l.parsed(t, text(l))
	c.Flows[0].To.Segment.Size = 1 << 30
	c.Flows[0].To.Prepare = config.PrepareAllocate
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	d, err := Open(c, Options{Log: quiet})
	testenv.Must(t, err)
	t.Cleanup(func() { testenv.Check(t, d.Close()) })
	b := &bench{lab: l}
	l.B.Do(t, func() { b.run, err = d.Flows()[0].open() })
	testenv.Must(t, err)
	b.disk, _ = b.run.Flow.(*pipeline.Pipeline).Sink().(*disk.Writer) // a feed's stage is in front of it
	t.Cleanup(func() { endRun(t, b.run, b.poll) })
	testenv.Must(t, b.run.Flow.Begin())
	l.Carry(t)
	b.sender = testenv.NewSender(t, &l.A)
	return b
}

func (b *bench) poll() bool { return b.run.Flow.Poll(time.Now()) }

// received is how many packets the flow has received.
func (b *bench) received() uint64 {
	n, _ := b.run.Flow.Traffic()
	return n
}

// endRun drains and closes a run that the test itself polls, as its watcher would.
func endRun(t testing.TB, r *pipeline.Run, poll func() bool) {
	t.Helper()
	testenv.Check(t, r.Flow.StopReceiving())
	for rounds, deadline := uint64(1), time.Now().Add(drainTimeout); time.Now().Before(deadline); rounds++ {
		poll()
		if done, err := r.Flow.Drain(time.Now(), rounds); done || err != nil || r.Err.Get() != nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	for {
		err := r.Flow.CloseQueue()
		if _, stuck := errors.AsType[*nvme.StuckError](err); stuck {
			continue
		}
		testenv.Check(t, err)
		break
	}
	testenv.Check(t, r.Close())
	testenv.Check(t, r.Err.Get())
}

// TestPollAllocatesNothing: a flow under traffic does not allocate when it receives, lays out, writes,
// flushes and records statistics.
func TestPollAllocatesNothing(t *testing.T) {
	for _, layout := range forms(layouts) {
		t.Run(layout, func(t *testing.T) {
			testenv.Leaks(t)
			b := newBenchOf(t, func(l *lab) string { return strings.Replace(l.form(layout), "flush: 50ms", "flush: 10ms", 1) })
			pause := int64(0)
			if layout == "packet" {
				pause = int64(time.Millisecond / 4) // until a block of the ring is full
			}
			frames := testenv.Stream(&b.lab.A, &b.lab.B, 9, 0, 64, 700)
			noted := disk.NewStatistics([]pcapng.Statistics{{Received: pcapng.Unknown, Dropped: pcapng.Unknown}})
			round := func() {
				b.disk.WriteStatistics(noted)
				for _, f := range frames {
					if _, err := b.sender.Send(f); err != nil {
						t.Fatal(err)
					}
				}
				ts := unix.NsecToTimespec(pause)
				_ = unix.Nanosleep(&ts, nil)
				for range 4 {
					b.poll()
				}
			}
			for range 200 { // until the first segment is in use and every slice has grown
				round()
			}
			before := b.disk.PacketsWritten()
			if n := testenv.AllocsPerRun(t, 500, round); n >= 1 {
				t.Errorf("polling allocates %v times for each %d packets", n, len(frames))
			}
			if b.run.Err.Get() != nil || b.disk.PacketsWritten() < before+1000 {
				t.Errorf("%d packets were written meanwhile: the test shows nothing (%v)", b.disk.PacketsWritten()-before, b.run.Err.Get())
			}
		})
	}
}

// TestFeedAllocatesNothing: neither does one whose packets a stage puts in order, of two lines that each leave out some.
func TestFeedAllocatesNothing(t *testing.T) {
	for _, layout := range oneOf(t, layouts...) {
		t.Run(layout, func(t *testing.T) {
			testenv.Leaks(t)
			b := newBenchOf(t, func(l *lab) string {
				stage := fmt.Sprintf("stages: [{counter: {lines: [{name: a, address: %s, port: 7000}, {name: b, address: %[1]s, port: 7001}]}}]", l.B.IP)
				return strings.Replace(l.defaults(layout), "    to:", "    "+stage+"\n    to:", 1)
			})
			frames := [2][]byte{testenv.UDP(&b.lab.A, &b.lab.B, 7000, 0, 700), testenv.UDP(&b.lab.A, &b.lab.B, 7001, 0, 700)}
			number := uint64(0)
			round := func() {
				for range 32 {
					number++
					for line, f := range frames {
						if number%8 == uint64(line) {
							continue
						}
						copy(f[40:], []byte{0, 0}) // no checksum
						binary.BigEndian.PutUint64(f[42:], number)
						if _, err := b.sender.Send(f); err != nil {
							t.Fatal(err)
						}
					}
				}
				for range 4 {
					b.poll()
				}
			}
			for range 200 {
				round()
			}
			before := b.observed(t)
			if n := testenv.AllocsPerRun(t, 500, round); n >= 1 {
				t.Errorf("polling allocates %v times for each 32 messages", n)
			}
			if s := b.observed(t); s.Written.Packets < before.Written.Packets+1000 || s.Feed.Lost > 0 || s.Feed.Lines[1].Wins == 0 || b.run.Err.Get() != nil {
				t.Errorf("%d messages were written meanwhile, %+v: the test shows nothing (%v)", s.Written.Packets-before.Written.Packets, s.Feed, b.run.Err.Get())
			}
		})
	}
}

// observed returns what the flow's ends say.
func (b *bench) observed(t *testing.T) *status.Flow {
	t.Helper()
	s := &status.Flow{Dropped: map[string]uint64{}, CopiedBytes: map[string]uint64{}, KernelBytes: map[string]uint64{}, DiskErrors: map[string]uint64{}, Passed: map[string]uint64{}}
	testenv.Must(t, b.run.Flow.Observe(s))
	return s
}

// BenchmarkCapture measures the time that polling takes for each packet, from the ring to the disk, without
// the sender and the kernel's work for it. 64 packets are waiting at each poll.
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
	before := x.received()
	b.ReportAllocs()
	b.ResetTimer()
	for done := 0; done < b.N && x.received() < most; done += len(frames) {
		for _, f := range frames {
			if _, err := x.sender.Send(f); err != nil {
				b.Fatal(err)
			}
		}
		begin := time.Now()
		for x.poll() {
		}
		spent += time.Since(begin)
	}
	b.StopTimer()
	if n := x.received() - before; n > 0 {
		b.ReportMetric(float64(spent.Nanoseconds())/float64(n), "ns/packet")
	}
}
