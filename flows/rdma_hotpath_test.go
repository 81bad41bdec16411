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

// logBench is an opened log that the test itself polls, with a client that sends.
type logBench struct {
	*rdmaStorage
	client   *client
	commands chan func()
}

// newLogBench opens a log; neither a worker nor a watcher runs.
func newLogBench(t *testing.T, to string) *logBench {
	t.Helper()
	l := newRDMALab(t)
	runtime.LockOSThread() // the block queue belongs to the thread that first polls it
	t.Cleanup(runtime.UnlockOSThread)
	c := l.parsed(t, l.logConfig(to, ""))
	c.Flows[0].To.Segment.Size, c.Flows[0].To.Prepare = 256<<20, config.PrepareAllocate
	d, err := Open(c, Options{Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	var r run
	l.B.Do(t, func() { r, err = d.Flows()[0].open() })
	if err != nil {
		t.Fatal(err)
	}
	b := &logBench{rdmaStorage: r.(*rdmaStorage), commands: make(chan func())}
	t.Cleanup(func() { b.end(t) })
	b.do = b.between
	if err := b.begin(); err != nil {
		t.Fatal(err)
	}
	b.client = l.newStation(t).newClient(t, 1, l.address(), "wal", 256)
	b.client.always = record(1, 0, 256)
	return b
}

// between runs f between two rounds.
func (b *logBench) between(f func() error) error {
	done := make(chan error)
	b.commands <- func() { done <- f() }
	return <-done
}

func (b *logBench) round() {
	select {
	case f := <-b.commands:
		f()
	default:
		b.Poll(time.Now())
	}
}

// end drains and releases the log as its watcher would.
func (b *logBench) end(t *testing.T) {
	t.Helper()
	_ = b.halt()
	for rounds, deadline := uint64(1), time.Now().Add(patience); time.Now().Before(deadline); rounds++ {
		b.round()
		if done, err := b.finish(time.Now(), rounds); done || err != nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if err := b.disk.queue.Close(); err != nil {
		t.Error(err)
	}
	if err := b.rdmaStorage.close(); err != nil {
		t.Error(err)
	}
	if err := b.fault(); err != nil {
		t.Error(err)
	}
}

// mallocs is how often anything is allocated while so many messages go through, the
// client and what runs beside it included.
func (b *logBench) mallocs(messages uint64) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for until := b.answered + messages; b.answered < until && b.fault() == nil; {
		b.round()
	}
	runtime.ReadMemStats(&after)
	return after.Mallocs - before.Mallocs
}

// TestLogAllocatesNothing: taking, numbering, writing, flushing and acknowledging make
// no garbage.
func TestLogAllocatesNothing(t *testing.T) {
	for _, layout := range shortly() {
		t.Run(layout, func(t *testing.T) {
			b := newLogBench(t, fmt.Sprintf("layout: %s, acknowledge: durable", layout))
			testenv.Wait(t, 10*time.Second, "the client", func() bool { b.round(); return b.receiver.Stats().Connected == 1 })
			b.client.send(1 << 30)
			for b.answered < 2000 { // every slice has grown
				b.round()
			}
			if n := b.mallocs(6400); n > 200 {
				t.Errorf("6400 messages allocate %d times", n)
			}
			if b.fault() != nil {
				t.Error(b.fault())
			}
		})
	}
}
