package segment

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/index"
)

// indexer makes indexes of complete segments, one after the other, on a goroutine of its own that the flow never waits for while it
// runs. Memory is a path for each segment that waits.
type indexer struct {
	log     *slog.Logger
	names   names
	make    index.Maker
	stop    context.CancelFunc
	running sync.WaitGroup
	wake    chan struct{} // something was added

	mu      sync.Mutex
	waiting []string

	segments, failed, bytes, cpu atomic.Uint64
}

func newIndexer(log *slog.Logger) *indexer {
	return &indexer{log: log, stop: func() {}, wake: make(chan struct{}, 1)}
}

// begin makes indexes from now on, first those that earlier runs left out. Without a function it makes them itself.
func (x *indexer) begin(m index.Maker, earlier names) {
	if x.make = m; m == nil {
		x.make = makeIndex
	}
	x.names = earlier
	var ctx context.Context
	ctx, x.stop = context.WithCancel(context.Background())
	x.running.Go(func() {
		x.addMissing(earlier)
		x.run(ctx)
	})
}

// close makes no more indexes. What is not made is left to the next start.
func (x *indexer) close() {
	x.stop()
	x.running.Wait()
}

// add notes a segment that is complete.
func (x *indexer) add(path string) {
	x.mu.Lock()
	x.waiting = append(x.waiting, path)
	x.mu.Unlock()
	select {
	case x.wake <- struct{}{}:
	default:
	}
}

// next is the segment that waits longest; it goes on waiting until it is done with.
func (x *indexer) next() (path string, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.waiting) == 0 {
		return "", false
	}
	return x.waiting[0], true
}

func (x *indexer) done() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.waiting = x.waiting[1:]
}

func (x *indexer) run(ctx context.Context) {
	for ctx.Err() == nil {
		path, ok := x.next()
		if ok {
			x.makeOne(ctx, path)
			x.done()
			continue
		}
		select {
		case <-x.wake:
		case <-ctx.Done():
		}
	}
}

// one makes the index of a segment. One that was removed meanwhile needs none.
func (x *indexer) makeOne(ctx context.Context, path string) {
	if missing(path) {
		return
	}
	cpu, err := x.make(ctx, path)
	x.cpu.Add(uint64(cpu))
	switch {
	case missing(path):
		x.names.removeIndex(path, x.log)
	case ctx.Err() != nil: // left to the next start
	case err != nil:
		x.failed.Add(1)
		x.log.Warn("a segment has no index: export reads it whole", "path", path, "why", err)
	default:
		x.segments.Add(1)
		if info, err := os.Stat(path + index.Suffix); err == nil {
			x.bytes.Add(uint64(info.Size()))
		}
	}
}

func missing(path string) bool {
	_, err := os.Stat(path)
	return errors.Is(err, fs.ErrNotExist)
}

// removeIndex removes what there is of the index of a segment.
func (n names) removeIndex(segment string, log *slog.Logger) {
	for _, name := range []string{segment + index.Suffix, segment + index.Suffix + index.Unfinished} {
		if err := n.remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			log.Warn("the index of a segment that was removed stays", "why", err)
		}
	}
}

// addMissing adds the segments that earlier runs left without an index that can be used.
func (x *indexer) addMissing(n names) {
	found, err := n.list()
	if err != nil {
		x.log.Warn("earlier segments stay without an index", "why", err)
		return
	}
	for _, s := range found {
		if !s.Prepared && isComplete(s.Path) && !indexed(s.Path) {
			x.add(s.Path)
		}
	}
}

// indexed reports whether a segment has an index that can be used.
func indexed(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	r, err := index.Open(f)
	if err != nil {
		return false
	}
	return r.Close() == nil
}

func (x *indexer) status() *status.Index {
	x.mu.Lock()
	waiting := uint64(len(x.waiting))
	x.mu.Unlock()
	return &status.Index{
		Segments: x.segments.Load(), Waiting: waiting, Failed: x.failed.Load(), Bytes: x.bytes.Load(), CPU: time.Duration(x.cpu.Load()),
	}
}

// makeIndex makes an index here, on a thread whose time is counted.
func makeIndex(ctx context.Context, path string) (time.Duration, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := threadTime()
	_, err := index.Make(ctx, path, true)
	return threadTime() - before, err
}

func threadTime() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
