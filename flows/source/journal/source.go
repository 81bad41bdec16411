package journal

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/pipeline"
	"github.com/unifiedd/unifiedd/flows/state"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/counter"
)

// Sink takes records. A call is for a chunk, and records are valid until it returns.
type Sink interface {
	Update(all []state.Update, now time.Time)
}

var _ pipeline.Source = (*Source)(nil)

// Source passes records to its own Sink, and no frame to the pipeline's.
type Source struct {
	reader reader
	sink   Sink
	end    context.CancelFunc
	signal [8]byte // what is read from the eventfd, and written to it

	packets, bytes counter.Counter
}

// Open returns a source that begins with the record at a position. It reads nothing before Begin.
func Open(e *pipeline.Env, from uint64, sink Sink) (*Source, error) {
	path := cmp.Or(e.Flow.From.Device, e.Flow.From.File)
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("create an eventfd: %w", err)
	}
	s := &Source{sink: sink, reader: reader{
		path: path, from: from, wake: fd, filled: make(chan *chunk, chunks), empty: make(chan *chunk, chunks), done: make(chan struct{}),
	}}
	for range chunks {
		s.reader.empty <- newChunk()
	}
	e.Undo.Add(func() error {
		s.stop()
		return os.NewSyscallError("close", unix.Close(fd))
	})
	return s, nil
}

// Begin implements pipeline.Source. It starts the goroutine that reads.
func (s *Source) Begin() error {
	ctx, end := context.WithCancel(context.Background())
	s.end = end
	go s.reader.run(ctx)
	return nil
}

// StopReceiving implements pipeline.Source. What was read and not applied is read again by the next run.
func (s *Source) StopReceiving(bool) error {
	s.stop()
	return nil
}

// stop ends the goroutine. It may be called again.
func (s *Source) stop() {
	if s.end != nil {
		s.end()
		<-s.reader.done
	}
}

// Receive implements pipeline.Source. It applies the chunks that were read.
func (s *Source) Receive(_ pipeline.Output, open bool, now time.Time) (more bool) {
	if !open {
		return false
	}
	select {
	case c := <-s.reader.filled:
		s.take(c, now)
		return len(s.reader.filled) > 0
	default:
		return false
	}
}

// take applies a chunk and gives it back.
func (s *Source) take(c *chunk, now time.Time) {
	_, _ = unix.Read(s.reader.wake, s.signal[:]) // fails only if it was read for an earlier chunk
	if len(s.reader.filled) > 0 {
		s.signal = [8]byte{1}
		_, _ = unix.Write(s.reader.wake, s.signal[:]) // the rest is for the next round
	}
	s.sink.Update(c.records, now)
	s.packets.Add(uint64(len(c.records)))
	s.bytes.Add(uint64(len(c.data)))
	s.reader.empty <- c // has room for all
}

func (s *Source) FDs(dst []unix.PollFd, blocked bool) []unix.PollFd {
	if blocked {
		return dst
	}
	return append(dst, unix.PollFd{Fd: int32(s.reader.wake), Events: unix.POLLIN})
}

// Drained implements pipeline.Source. What is left in chunks is read again by the next run.
func (s *Source) Drained(uint64) bool { return true }

func (s *Source) Traffic() (packets, bytes uint64) { return s.packets.Load(), s.bytes.Load() }

// Check implements pipeline.Source. The flow waits for a log that does not exist yet. It ends if the log cannot be read.
func (s *Source) Check(time.Time) (waits, ends error) {
	if err := s.reader.failed.Load(); err != nil {
		return nil, *err
	}
	if err := s.reader.waits.Load(); err != nil {
		return *err, nil
	}
	return nil, nil
}

func (s *Source) Announce() []any { return []any{"log", s.reader.path} }

func (s *Source) Observe(to *status.Flow) error {
	to.Packets, to.Bytes = s.Traffic()
	to.Dropped["missing"] = s.reader.missing.Load()
	to.Offered = to.Packets + to.Dropped["missing"]
	to.CopiedBytes["log"] = to.Bytes // into chunks
	return nil
}
