//go:build verbs && cgo

package main

import (
	"encoding/binary"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// writers write concurrently to a disk with direct I/O, and read back what they wrote. Each writer
// has its own places and knows the last acknowledged version of each.
type writers struct {
	all    []*writer
	stop   atomic.Bool
	result chan error // of each writer; nil if it was told to stop
}

// writer is one writer. It has one operation in flight.
type writer struct {
	number   int
	mu       sync.Mutex // held while an operation is in flight
	file     *os.File
	memory   []byte
	versions [placesEach]uint64 // the last acknowledged version of each place
	done     atomic.Uint64      // rounds
	longest  atomic.Int64       // nanoseconds of a round
}

// The area of the writers. It is clear of the start of the disk, and of the parts that labenv.Map uses.
const (
	writersAt  = 64 << 20
	writerMany = 4
	placesEach = 4
	placeSize  = 64 << 10
)

// sizes are the sizes of places. Some fit into a capsule; the target reads others by RDMA.
var sizes = [placesEach]int{4 << 10, 32 << 10, 512, placeSize}

func (w *writer) size(place int) int { return sizes[place] }

func (w *writer) offset(place int) int64 {
	return writersAt + int64(w.number*placesEach+place)*placeSize
}

// startWriters starts the writers. The end of the test stops them.
func startWriters(t *testing.T, disk string) *writers {
	t.Helper()
	all := &writers{result: make(chan error, writerMany)}
	for i := range writerMany {
		w := &writer{number: i}
		testenv.Must(t, w.open(disk))
		all.all = append(all.all, w)
	}
	var running sync.WaitGroup
	for _, w := range all.all {
		running.Go(func() { all.result <- w.run(&all.stop) })
	}
	t.Cleanup(func() {
		all.stop.Store(true)
		running.Wait()
		for _, w := range all.all {
			w.close()
		}
	})
	return all
}

func (w *writer) open(disk string) (err error) {
	if w.file, err = os.OpenFile(disk, os.O_RDWR|unix.O_DIRECT, 0); err != nil {
		return err
	}
	w.memory, err = unix.Mmap(-1, 0, placeSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	return err
}

func (w *writer) close() {
	_ = w.file.Close()
	_ = unix.Munmap(w.memory)
}

func (w *writer) run(stop *atomic.Bool) error {
	for n := 0; !stop.Load(); n++ {
		if err := w.round(n); err != nil {
			return fmt.Errorf("writer %d, round %d: %w", w.number, n, err)
		}
	}
	return nil
}

// round writes one place, and reads another that was written before.
func (w *writer) round(n int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	begin := time.Now()
	if err := w.write(n % placesEach); err != nil {
		return err
	}
	if err := w.read(w.file, (n+1)%placesEach); err != nil {
		return err
	}
	w.longest.Store(max(w.longest.Load(), int64(time.Since(begin))))
	w.done.Add(1)
	return nil
}

// word returns the 8 bytes of a place's version at an offset.
func (w *writer) word(place int, version uint64, at int) uint64 {
	return uint64(w.number)<<56 | uint64(place)<<48 | uint64(at/8)<<32 | version&(1<<32-1)
}

func (w *writer) write(place int) error {
	b, version := w.memory[:w.size(place)], w.versions[place]+1
	for at := 0; at < len(b); at += 8 {
		binary.LittleEndian.PutUint64(b[at:], w.word(place, version, at))
	}
	if _, err := w.file.WriteAt(b, w.offset(place)); err != nil {
		return fmt.Errorf("write version %d of place %d: %w", version, place, err)
	}
	w.versions[place] = version
	return nil
}

// read reads a place. It must have the last acknowledged version.
func (w *writer) read(from *os.File, place int) error {
	version := w.versions[place]
	if version == 0 {
		return nil
	}
	b := w.memory[:w.size(place)]
	clear(b)
	if _, err := from.ReadAt(b, w.offset(place)); err != nil {
		return fmt.Errorf("read place %d: %w", place, err)
	}
	for at := 0; at < len(b); at += 8 {
		if got, want := binary.LittleEndian.Uint64(b[at:]), w.word(place, version, at); got != want {
			return fmt.Errorf("place %d has %#x at %d of %d and not %#x: version %d was acknowledged", place, got, at, len(b), want, version)
		}
	}
	return nil
}

// verify reads every place, from the writers' disk, or from another one that must have the same content.
func (a *writers) verify(t *testing.T, other *os.File) {
	t.Helper()
	for _, w := range a.all {
		w.mu.Lock()
		from := other
		if other == nil {
			from = w.file
		}
		for place := range placesEach {
			testenv.Checkf(t, w.read(from, place), "writer %d", w.number)
		}
		w.mu.Unlock()
	}
}

// goOn waits until each writer has done some more rounds.
func (a *writers) goOn(t *testing.T) {
	t.Helper()
	var until [writerMany]uint64
	for i, w := range a.all {
		until[i] = w.done.Load() + 2
	}
	testenv.Wait(t, waitLimit, "writes and reads to go on", func() bool {
		select {
		case err := <-a.result:
			t.Fatalf("one does not go on: %v", err)
		default:
		}
		for i, w := range a.all {
			if w.done.Load() < until[i] {
				return false
			}
		}
		return true
	})
}

// end stops the writers. None may have failed.
func (a *writers) end(t *testing.T) {
	t.Helper()
	a.stop.Store(true)
	for range a.all {
		testenv.Check(t, <-a.result)
	}
	var rounds uint64
	var longest time.Duration
	for _, w := range a.all {
		rounds += w.done.Load()
		longest = max(longest, time.Duration(w.longest.Load()))
	}
	t.Logf("%d writes and reads; the longest took %v", rounds, longest.Round(time.Millisecond))
}
