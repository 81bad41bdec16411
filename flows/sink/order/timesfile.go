package order

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/counter"
)

// timesFile writes the times of each order to a file, a line each. The worker puts them into a ring, from which a
// goroutine takes them. If the ring is full, or the file takes nothing, times are dropped and counted, and orders go on.
//
// When the file has been moved away or removed, a new one is begun.
type timesFile struct {
	path  string
	log   *slog.Logger
	ring  [ringEntries]asked
	puts  atomic.Uint64 // entries put so far; written by the worker behind the entry
	takes atomic.Uint64 // entries taken; written by the goroutine when it is done with the entry

	full    counter.Counter        // of the worker: orders that were dropped as the ring was full
	written counter.Counter        // of the goroutine: orders in the file
	failed  counter.Counter        // of the goroutine: orders that the file did not take
	trouble atomic.Pointer[string] // why it does not; nil: it does

	file   *os.File // of the goroutine; nil: none could be opened in place of the last one
	size   int64    // of the file
	lines  []byte   // that are not written yet
	orders uint64   // in lines
	stop   chan struct{}
	done   chan error
	once   sync.Once
	err    error // of close
}

// ringEntries is how many orders may wait for the goroutine, a power of two: 400 KiB, and more than leave within flushTime
// at half a million a second.
const ringEntries = 8192

// How long an order may wait until it is in the file, and how often the goroutine looks whether the file is still there.
const (
	flushTime = 10 * time.Millisecond
	checkTime = time.Second
)

// mostLine is more than a line has: five numbers of at most 20 digits, a word, commas.
const mostLine = 160

// header is the first line of a file.
const header = "order,tick,decision,call,stamp,way\n"

// openTimesFile opens a file, behind what it has, and begins to write. The caller closes it.
func openTimesFile(path string, log *slog.Logger) (*timesFile, error) {
	t := &timesFile{path: path, log: log, lines: make([]byte, 0, 64<<10), stop: make(chan struct{}), done: make(chan error, 1)}
	if err := t.open(); err != nil {
		return nil, fmt.Errorf("to.order.times: %w", err)
	}
	go t.run()
	return t, nil
}

// open opens the file for one writer.
func (t *timesFile) open() error {
	f, err := os.OpenFile(t.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o640)
	if err != nil {
		return err
	}
	if err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		err = fmt.Errorf("%s: another flow or daemon writes it (name another file)", t.path)
	}
	var i os.FileInfo
	if err == nil {
		i, err = f.Stat()
	}
	if err == nil && !i.Mode().IsRegular() {
		err = fmt.Errorf("%s: it is no regular file", t.path)
	}
	if err == nil {
		t.size = i.Size()
		if t.size == 0 {
			var n int
			n, err = f.WriteString(header)
			t.size += int64(n)
		}
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	t.file = f
	return nil
}

// put adds an order. It is for the worker's thread, and neither waits nor allocates.
func (t *timesFile) put(a *asked) {
	n := t.puts.Load()
	if n-t.takes.Load() == ringEntries {
		t.full.Add(1)
		return
	}
	t.ring[n%ringEntries] = *a
	t.puts.Store(n + 1)
}

// run is the goroutine.
func (t *timesFile) run() {
	flush, check := time.NewTicker(flushTime), time.NewTicker(checkTime)
	defer flush.Stop()
	defer check.Stop()
	for {
		select {
		case <-flush.C:
			t.drain()
		case <-check.C:
			t.follow()
		case <-t.stop:
			t.drain()
			var err error
			if t.file != nil {
				err = t.file.Close()
			}
			t.done <- err
			return
		}
	}
}

// drain writes what is in the ring.
func (t *timesFile) drain() {
	for n, end := t.takes.Load(), t.puts.Load(); n < end; n++ {
		t.add(&t.ring[n%ringEntries])
		t.takes.Store(n + 1)
		if cap(t.lines)-len(t.lines) < mostLine {
			t.flush()
		}
	}
	t.flush()
}

// add makes a line of an order.
func (t *timesFile) add(a *asked) {
	b := t.lines
	for _, v := range [...]uint64{a.order, a.tick, a.decision, a.call, a.stamp} {
		b = append(strconv.AppendUint(b, v, 10), ',')
	}
	t.lines = append(append(b, a.way.String()...), '\n')
	t.orders++
}

// flush writes the lines. Lines that the file does not take whole are dropped, and no part of them stays in it.
func (t *timesFile) flush() {
	if len(t.lines) == 0 {
		return
	}
	err := errGone
	if t.file != nil {
		if _, err = t.file.Write(t.lines); err != nil {
			err = errors.Join(err, t.file.Truncate(t.size))
		}
	}
	if err == nil {
		t.size += int64(len(t.lines))
		t.written.Add(t.orders)
		t.trouble.Store(nil)
	} else {
		t.failed.Add(t.orders)
		t.note(err)
	}
	t.lines, t.orders = t.lines[:0], 0
}

var errGone = errors.New("the file was moved away or removed, and cannot be made anew")

// note says why times are dropped. The log has it once, until times are written again.
func (t *timesFile) note(err error) {
	text := err.Error()
	if t.trouble.Swap(&text) == nil {
		t.log.Error("times of orders are dropped", "path", t.path, "err", err)
	}
}

// follow begins a new file if the name is not that of the open one any more.
func (t *timesFile) follow() {
	if t.file != nil {
		mine, err := t.file.Stat()
		if err != nil {
			return
		}
		named, err := os.Stat(t.path)
		if err == nil && os.SameFile(mine, named) || err != nil && !errors.Is(err, os.ErrNotExist) {
			return
		}
		t.drain() // into the old one
		if err := t.file.Close(); err != nil {
			t.note(err)
		}
		t.file = nil
	}
	if err := t.open(); err != nil {
		t.note(fmt.Errorf("%w: %w", errGone, err))
	}
}

// close writes what is in the ring, and closes the file. The worker must not put anything any more.
func (t *timesFile) close() error {
	t.once.Do(func() {
		close(t.stop)
		t.err = <-t.done
	})
	return t.err
}

// status may be called from any goroutine.
func (t *timesFile) status() *status.OrderTimesFile {
	s := &status.OrderTimesFile{Path: t.path, Orders: t.written.Load(), Dropped: map[string]uint64{"slow_file": t.full.Load(), "file_error": t.failed.Load()}}
	if why := t.trouble.Load(); why != nil {
		s.Error = *why
	}
	return s
}
