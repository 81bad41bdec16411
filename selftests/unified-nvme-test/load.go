package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/latency"
	"github.com/unifiedd/unifiedd/selftests/harness"
	"github.com/unifiedd/unifiedd/umem"
)

// load runs the load of -rw. It prints the result to out, and a warning to errs when the device
// does not answer.
func load(ctx context.Context, o options, out, errs io.Writer) (err error) {
	n := need{block: uint64(o.block), depth: o.depth}
	if o.gather && o.block > frameSize {
		n.piece = frameSize
	}
	s, err := open(o, n)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.cleanup.Close()) }()
	l, err := newLoader(s, o)
	if err != nil {
		return err
	}
	defer l.watch(errs, silence)()
	result, err := l.measure(ctx)
	if err != nil {
		return err
	}
	if o.verify && o.writes() {
		if err := l.readBack(ctx); err != nil {
			return err
		}
	}
	return result.print(out, o.json)
}

// loader keeps a queue full of operations. It owns the idle blocks.
type loader struct {
	*session
	plan    *plan
	check   *checker // nil without -verify
	clock   clock
	hist    *latency.Histogram // nil without latencies
	reads   []umem.Frame
	writes  []umem.Frame
	done    []umem.Frame // room for completed blocks
	idle    []umem.Frame // blocks not in use, chains in one piece, a stack
	flying  int          // blocks in the queue
	stop    atomic.Bool  // start no more operations
	options options
}

func newLoader(s *session, o options) (*loader, error) {
	extent := s.target.Size()
	if o.size > 0 {
		if uint64(o.size) > extent {
			return nil, fmt.Errorf("-size %v: %s has only %d bytes", &o.size, s.target.Path(), extent)
		}
		extent = uint64(o.size)
	}
	if extent < uint64(o.block) {
		return nil, fmt.Errorf("%s has %d bytes, too few for one block of %d", s.target.Path(), extent, o.block)
	}
	if a := uint64(s.target.Alignment().Offset); uint64(o.block)%a != 0 {
		return nil, fmt.Errorf("-bs %v: %s wants multiples of %d bytes", &o.block, s.target.Path(), a)
	}
	n := len(s.blocks)
	l := &loader{session: s, plan: newPlan(o, extent), options: o, idle: s.blocks, clock: clock{time.Now()},
		reads: make([]umem.Frame, 0, n), writes: make([]umem.Frame, 0, n), done: make([]umem.Frame, n)}
	if o.latency {
		l.hist = latency.New()
	}
	if o.verify {
		l.check = newChecker(o, l.plan.blocks)
	}
	l.fill(o.seed)
	return l, nil
}

// fill gives every block contents that do not compress.
func (l *loader) fill(seed uint64) {
	rnd := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16), byte(seed >> 24)})
	for _, f := range l.idle {
		_, _ = rnd.Read(l.region.Bytes(f)) // it always fills the whole slice
	}
}

// measure runs the plan to its end.
func (l *loader) measure(ctx context.Context) (*result, error) {
	before := take(l.queue)
	defer harness.StopAfter(ctx, time.Duration(l.options.runtime), func() { l.stop.Store(true) })()
	err := l.run()
	r := newResult(l, before, take(l.queue))
	if err != nil {
		return nil, err
	}
	return r, ctx.Err()
}

// readBack reads the blocks that -verify wrote and checks them. Its reads do not count in the
// result.
func (l *loader) readBack(ctx context.Context) error {
	defer harness.StopAfter(ctx, time.Duration(l.options.runtime), func() { l.stop.Store(true) })()
	l.plan, l.hist = l.check.back(), nil
	if err := l.run(); err != nil {
		return err
	}
	return ctx.Err()
}

// run starts operations for the idle blocks, a batch at a time, and takes completed blocks. If none
// is idle, it sleeps until some complete. It ends when the plan is done and nothing is in flight.
// One reading of the clock ends one batch and starts the next.
func (l *loader) run() error {
	now := l.now()
	for {
		if err := l.start(now); err != nil {
			return err
		}
		if l.flying == 0 {
			return nil
		}
		if err := l.turn(); err != nil {
			return err
		}
		now = l.now()
		if err := l.finish(now); err != nil {
			return err
		}
	}
}

// turn submits the started operations, and sleeps if it can start no more before something
// completes.
func (l *loader) turn() error {
	if len(l.idle) > 0 && l.more() {
		return l.queue.Kick()
	}
	return l.queue.WaitFor(l.options.least, -1)
}

// more reports whether there is work to start.
func (l *loader) more() bool { return l.plan.left > 0 && !l.stop.Load() }

// now returns the time if it is needed.
func (l *loader) now() uint64 {
	if l.hist == nil {
		return 0
	}
	return l.clock.now()
}

// start gives a batch of operations for idle blocks to the queue.
func (l *loader) start(now uint64) error {
	for n := l.options.batch; n > 0 && len(l.idle) > 0 && l.more(); n-- {
		rest := len(l.idle) - l.pieces
		chain := l.idle[rest:]
		number, read := l.plan.place()
		if l.check != nil {
			number = l.check.begin(l.region, chain, number, read)
		}
		*l.region.Side(chain[0]) = umem.Side{Target: l.number, Block: number * l.plan.block, Stamp: now}
		if read {
			l.reads = append(l.reads, chain...)
		} else {
			l.writes = append(l.writes, chain...)
		}
		l.idle = l.idle[:rest]
		l.flying++
	}
	return l.hand()
}

// hand gives the queue the operations that start has made. The queue has room for all blocks.
func (l *loader) hand() error {
	taken := 0
	if len(l.reads) > 0 {
		taken += l.queue.Supply(l.reads)
	}
	if len(l.writes) > 0 {
		taken += l.queue.Send(l.writes)
	}
	if want := len(l.reads) + len(l.writes); taken != want {
		return fmt.Errorf("the queue took %d of %d frames, fewer than it was opened for", taken, want)
	}
	l.reads, l.writes = l.reads[:0], l.writes[:0]
	return nil
}

// finish takes completed operations.
func (l *loader) finish(now uint64) error {
	n := l.queue.Recv(l.done)
	if err := l.complete(l.done[:n], now, true); err != nil {
		return err
	}
	n = l.queue.Reap(l.done)
	return l.complete(l.done[:n], now, false)
}

// complete checks finished operations and makes their blocks idle.
func (l *loader) complete(fs []umem.Frame, now uint64, read bool) error {
	for i := 0; i < len(fs); i += l.pieces {
		chain := fs[i : i+l.pieces]
		side := l.region.Side(chain[0])
		if chain[0].Options&umem.Failed != 0 {
			return l.explain(chain[0], side.Block, read)
		}
		if l.hist != nil {
			l.hist.Record(now - side.Stamp)
		}
		if l.check != nil {
			if err := l.check.end(l.region, chain, side.Block/l.plan.block, read); err != nil {
				return err
			}
		}
	}
	l.flying -= len(fs) / l.pieces
	l.idle = append(l.idle, fs...)
	return nil
}

// explain names a failed operation and its possible cause.
func (l *loader) explain(f umem.Frame, at uint64, read bool) error {
	what := "write"
	if read {
		what = "read"
	}
	err := fmt.Errorf("%s %d bytes at %d of %s: %w", what, l.plan.block, at, l.target.Path(), f.Err())
	switch {
	case errors.Is(err, unix.EIO):
		return fmt.Errorf("%w (the device reports a fault: see dmesg)", err)
	case errors.Is(err, unix.ENODATA):
		return fmt.Errorf("%w (the file has become shorter)", err)
	}
	return err
}

// clock returns the time in nanoseconds since it was made.
type clock struct{ start time.Time }

func (c clock) now() uint64 { return uint64(time.Since(c.start)) }
