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

// indexer makes indexes of complete segments, one at a time, on its own goroutine. The flow does
// not wait for it while the flow runs. It needs memory for one path per waiting segment.
type indexer struct {
	log     *slog.Logger
	names   names
	make    index.Maker
	stop    context.CancelFunc
	running sync.WaitGroup
	wake    chan struct{} // a segment was added

	mu      sync.Mutex
	waiting []string

	segments, failed, bytes, cpu atomic.Uint64
}

func newIndexer(log *slog.Logger) *indexer {
	return &indexer{log: log, stop: func() {}, wake: make(chan struct{}, 1)}
}

// begin starts the goroutine. The goroutine first makes the indexes that earlier runs did not make.
// If m is nil, this process makes them.
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

// close stops the goroutine. The next start makes the missing indexes.
func (x *indexer) close() {
	x.stop()
	x.running.Wait()
}

// add appends a complete segment to the queue.
func (x *indexer) add(path string) {
	x.mu.Lock()
	x.waiting = append(x.waiting, path)
	x.mu.Unlock()
	select {
	case x.wake <- struct{}{}:
	default:
	}
}

// next returns the segment that has waited longest. It stays in the queue until done is called.
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

// makeOne makes the index of a segment, unless the segment was deleted.
func (x *indexer) makeOne(ctx context.Context, path string) {
	if missing(path) {
		return
	}
	cpu, err := x.make(ctx, path)
	x.cpu.Add(uint64(cpu))
	switch {
	case missing(path):
		x.names.removeIndex(path, x.log)
	case ctx.Err() != nil: // the next start makes it
	case err != nil:
		x.failed.Add(1)
		x.log.Warn("segment has no index: export reads all of it", "path", path, "err", err)
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

// removeIndex deletes the index of a segment, even an unfinished one.
func (n names) removeIndex(segment string, log *slog.Logger) {
	for _, name := range []string{segment + index.Suffix, segment + index.Suffix + index.Unfinished} {
		if err := n.remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			log.Warn("could not remove the index of a removed segment", "err", err)
		}
	}
}

// addMissing queues the segments of earlier runs that have no usable index.
func (x *indexer) addMissing(n names) {
	found, err := n.list()
	if err != nil {
		x.log.Warn("earlier segments get no index", "err", err)
		return
	}
	for _, s := range found {
		if !s.Prepared && isComplete(s.Path) && !indexed(s.Path) {
			x.add(s.Path)
		}
	}
}

// indexed reports whether a segment has a usable index.
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

// makeIndex makes an index in this process, on a locked thread so that its processor time can be
// read.
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
