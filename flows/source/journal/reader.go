package journal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/journal"
	"github.com/unifiedd/unifiedd/flows/state"
	"github.com/unifiedd/unifiedd/internal/counter"
)

const (
	// chunkRecords and chunkBytes bound a chunk. A longer record has a chunk of its own.
	chunkRecords = 64
	chunkBytes   = 256 << 10
	// chunks is how many chunks there are: the goroutine fills one while the worker applies another.
	chunks = 4
	// retry is the time between two attempts to open a log that does not exist yet.
	retry = time.Second
)

// chunk has records that follow each other. It belongs to whoever has it: it goes through channels.
type chunk struct {
	records []state.Update
	data    []byte // of all payloads
}

func newChunk() *chunk {
	return &chunk{records: make([]state.Update, 0, chunkRecords), data: make([]byte, 0, chunkBytes)}
}

func (c *chunk) reset() { c.records, c.data = c.records[:0], c.data[:0] }

// add copies a record.
func (c *chunk) add(r *journal.Record) {
	at := len(c.data)
	c.data = append(c.data, r.Payload...)
	c.records = append(c.records, state.Update{Position: r.Position, Stamp: r.Time, Message: c.data[at:len(c.data):len(c.data)]})
}

// full reports whether a record of n bytes does not fit.
func (c *chunk) full(n int) bool {
	return len(c.records) == chunkRecords || len(c.records) > 0 && len(c.data)+n > cap(c.data)
}

// reader reads the log. It belongs to its goroutine, except for what is atomic.
type reader struct {
	path string
	from uint64 // position of the first record
	wake int    // eventfd that wakes the worker

	filled, empty chan *chunk
	failed        atomic.Pointer[error]
	waits         atomic.Pointer[error]
	missing       counter.Counter // records that the log does not have any more, or not whole
	done          chan struct{}   // closed when the goroutine has ended
}

// run reads until ctx ends or the log cannot be read.
func (r *reader) run(ctx context.Context) {
	defer close(r.done)
	err := r.follow(ctx)
	if ctx.Err() != nil {
		return
	}
	if _, void := errors.AsType[*journal.Cut](err); void {
		err = fmt.Errorf("%w (the state has them: restart the daemon)", err)
	}
	r.failed.Store(&err)
}

// follow opens the log, as soon as it exists, and reads it.
func (r *reader) follow(ctx context.Context) (err error) {
	l, err := r.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	from := l.Reader(r.from)
	defer func() { err = errors.Join(err, from.Close()) }()
	into, err := r.next(ctx)
	for err == nil {
		var rec journal.Record
		if rec, err = from.Poll(); errors.Is(err, io.EOF) {
			if into, err = r.give(ctx, into); err == nil { // before it waits
				rec, err = from.Wait(ctx)
			}
		}
		if gap, is := errors.AsType[*journal.Gap](err); is {
			r.missing.Add(gap.Records)
			err = nil
			continue
		}
		if err != nil || rec.Control() {
			continue
		}
		if into.full(len(rec.Payload)) {
			if into, err = r.give(ctx, into); err != nil {
				return err
			}
		}
		into.add(&rec)
	}
	return err
}

// open waits until the log exists. The flow that writes it may start later.
func (r *reader) open(ctx context.Context) (*journal.Log, error) {
	for {
		l, err := opened(r.path)
		if err == nil || !errors.Is(err, fs.ErrNotExist) {
			r.waits.Store(nil)
			return l, err
		}
		r.waits.Store(&err)
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(retry):
		}
	}
}

// opened opens a log. The error matches fs.ErrNotExist as long as there is nothing of it.
func opened(path string) (*journal.Log, error) {
	l, err := journal.Open(path)
	if err != nil {
		return nil, err
	}
	is, err := l.Exists()
	if err == nil && !is {
		err = fmt.Errorf("open log %s: no segment begins with it: %w", path, fs.ErrNotExist)
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// give hands a chunk to the worker, unless it is empty, and returns an empty one.
func (r *reader) give(ctx context.Context, c *chunk) (*chunk, error) {
	if len(c.records) == 0 {
		return c, nil
	}
	r.filled <- c // has room for all
	one := [8]byte{1}
	_, _ = unix.Write(r.wake, one[:]) // fails only if it is readable already
	return r.next(ctx)
}

// next returns an empty chunk.
func (r *reader) next(ctx context.Context) (*chunk, error) {
	select {
	case c := <-r.empty:
		c.reset()
		return c, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
