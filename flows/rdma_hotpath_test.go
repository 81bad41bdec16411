package flows

import (
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/pipeline"
	"github.com/unifiedd/unifiedd/flows/source/message"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// logBench is an opened log that the test itself polls, with a client that sends.
type logBench struct {
	run      *pipeline.Run
	source   *message.Source
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
	d, err := Open(c, Options{Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Trace: traceDir(t)})
	testenv.Must(t, err)
	t.Cleanup(func() { testenv.Check(t, d.Close()) })
	b := &logBench{commands: make(chan func())}
	e := d.Flows()[0].env()
	e.Do = b.between
	defer e.Undo.Run()
	l.B.Do(t, func() { b.run, err = open(e) })
	testenv.Must(t, err)
	b.source = b.run.Flow.(*pipeline.Pipeline).Source().(*message.Source)
	t.Cleanup(func() { endRun(t, b.run, b.round) })
	testenv.Must(t, b.run.Flow.Begin())
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

func (b *logBench) round() (more bool) {
	select {
	case f := <-b.commands:
		f()
	default:
		more = b.run.Flow.Poll(time.Now())
	}
	return more
}

// pass lets this many messages pass through.
func (b *logBench) pass(messages uint64) {
	for until := b.source.Acknowledged() + messages; b.source.Acknowledged() < until && b.run.Err.Get() == nil; {
		b.round()
	}
}

// TestLogAllocatesNothing: a log does not allocate when it receives, numbers, writes, flushes and
// acknowledges.
func TestLogAllocatesNothing(t *testing.T) {
	for _, layout := range shortly() {
		t.Run(layout, func(t *testing.T) {
			b := newLogBench(t, fmt.Sprintf("layout: %s, acknowledge: durable", layout))
			testenv.Wait(t, 10*time.Second, "the client", func() bool { b.round(); return b.source.Receiver().Stats().Connected == 1 })
			b.client.send(1 << 30)
			for b.source.Acknowledged() < 2000 { // every slice has grown
				b.round()
			}
			const messages = 6400
			if n := testenv.Allocs(t, messages/32, func() { b.pass(messages) }); n > 0 {
				t.Errorf("32 messages allocate %d times", n)
			}
			if b.run.Err.Get() != nil {
				t.Error(b.run.Err.Get())
			}
		})
	}
}
