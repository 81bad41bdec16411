package trace

import (
	"errors"
	"fmt"
	"math"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/release"
)

type atomicWord = atomic.Uint64

func storeRelease(word *atomicWord, n uint64) { release.Store64(word, n) }

// Where the words that change are, for readers of the file.
const (
	liveAt  = 64
	notedAt = 128
)

// Recorder records what one flow does. The methods for the worker's thread must not be called after Close.
type Recorder struct {
	header *header
	live   *live
	rounds []roundRecord
	mask   uint64
	flags  uint32        // of the last record; owned by the worker's thread
	since  time.Duration // from the round before to this one; owned by the worker's thread
	now    int64         // when this round began; owned by the worker's thread

	mu     sync.Mutex // guards the fields below, and the notes
	notes  []noteRecord
	mapped []byte // nil: closed
}

// create makes the file of a flow, with all its pages, and maps it.
func create(path, flow, version string, events uint32) (r *Recorder, err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() {
		err = errors.Join(err, f.Close())
		if r == nil {
			err = errors.Join(err, os.Remove(path))
		}
	}()
	size := fileLen(events, notesKept)
	if err := unix.Fallocate(int(f.Fd()), 0, 0, size); err != nil {
		return nil, fmt.Errorf("allocate %d bytes for %s: %w (lower trace.events, or free memory)", size, path, err)
	}
	b, err := unix.Mmap(int(f.Fd()), 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", path, err)
	}
	_ = unix.Mlock(b) // without the right to, its pages may be swapped as any others
	r = &Recorder{mapped: b, mask: uint64(events) - 1}
	r.view(b, events, notesKept)
	h := r.header
	h.rounds, h.notes, h.pid, h.started = events, notesKept, uint32(os.Getpid()), time.Now().UnixNano()
	h.nameLen, h.versionLen = uint16(copy(b[nameAt:nameAt+textLen], flow)), uint16(copy(b[versionAt:versionAt+textLen], version))
	copy(h.magic[:], magic) // from here on the file is valid
	return r, nil
}

// Begin begins a round, in the step Reap.
func (r *Recorder) Begin(now time.Time) {
	if r == nil {
		return
	}
	at := now.UnixNano()
	r.since, r.now = time.Duration(at-r.now), at
	r.live.at, r.live.step = at, uint64(Reap)
}

// Step says in which step the round is.
func (r *Recorder) Step(s Step) {
	if r != nil {
		r.live.step = uint64(s)
	}
}

// End ends a round. packets and bytes are what the flow has received since it began, held is how many frames it has
// in flight, and flags say how the round ended. A round that received nothing is recorded if its flags differ from
// those of the last one.
func (r *Recorder) End(packets, bytes uint64, held int, flags uint32) {
	if r == nil {
		return
	}
	l := r.live
	l.rounds++
	if packets != l.packets || flags != r.flags {
		r.record(packets, bytes, held, flags)
	}
	l.step = uint64(Between)
}

func (r *Recorder) record(packets, bytes uint64, held int, flags uint32) {
	l := r.live
	e := &r.rounds[l.recorded&r.mask]
	e.at, e.since, e.held, e.flags = r.now, limit(uint64(max(0, r.since))), limit(uint64(max(0, held))), flags
	e.packets, e.bytes = limit(packets-l.packets), limit(bytes-l.bytes)
	l.packets, l.bytes, r.flags = packets, bytes, flags
	publish(&l.recorded, l.recorded+1)
}

// limit returns n, or the largest number of 32 bits.
func limit(n uint64) uint32 { return uint32(min(n, math.MaxUint32)) }

// Restart is called when the flow begins anew, before a worker polls it: what it counts begins at 0.
func (r *Recorder) Restart() {
	if r == nil {
		return
	}
	r.live.packets, r.live.bytes, r.flags, r.now = 0, 0, 0, time.Now().UnixNano()
	r.live.step = uint64(Between)
}

// Rounds is how many rounds were recorded, for the worker's thread.
func (r *Recorder) Rounds() uint64 {
	if r == nil {
		return 0
	}
	return r.live.recorded
}

// Stop is called when no worker polls the flow any more.
func (r *Recorder) Stop() { r.Step(Stopped) }

// Note records something that happens seldom. A text of more than 104 bytes is cut.
func (r *Recorder) Note(kind Kind, value uint64, text string) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mapped == nil {
		return
	}
	n := r.header.noted
	e := &r.notes[n%uint64(len(r.notes))]
	e.at, e.value, e.kind = time.Now().UnixNano(), value, uint16(kind)
	e.len = uint16(copy(e.text[:], text))
	publish(&r.header.noted, n+1)
}

// Close unmaps the file, and leaves it. The caller may call it twice.
func (r *Recorder) Close() error {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.mapped
	if b == nil {
		return nil
	}
	r.mapped = nil
	return unix.Munmap(b)
}
