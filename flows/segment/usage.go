package segment

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/pcapng"
)

// usage says what the segments of a run that is open hold, or held when last the disk answered in time. The time of the newest packet written is
// the caller's. It may be called from any goroutine.
func (s *Manager) usage(newest func() uint64) (*status.Usage, error) {
	if s.to.Exact {
		return nil, nil
	}
	return s.usageCache.take(func() (*status.Usage, error) { return s.readUsage(newest()) })
}

// lookAtSegments reads little of the disk.
func (s *Manager) readUsage(newest uint64) (*status.Usage, error) {
	h, err := &status.Usage{Unreadable: s.unreadable}, error(nil)
	if s.ring != nil {
		err = s.ring.usage(h, s.acquired.Load())
	} else {
		err = s.fileUsage(h)
	}
	h.Newest = instant(max(s.newestBefore, newest))
	return h, err
}

// Observe adds what is known of the segments to a flow's status. newest returns the time of the newest packet written, in nanoseconds since 1970.
// Any goroutine may call it.
func (s *Manager) Observe(to *status.Flow, newest func() uint64) (err error) {
	to.Removed, to.Floor, to.Segments = s.removed.status(), s.space.status(), s.acquired.Load()
	if s.indexer != nil {
		to.Index = s.indexer.status()
	}
	if to.Held, err = s.usage(newest); err != nil {
		return fmt.Errorf("what the segments hold: %w", err)
	}
	return nil
}

// view is what was seen of the disk last. Looking may take as long as the disk does to
// answer, and who asks for the status must not wait for one that hangs.
type usageCache struct {
	mu      sync.Mutex
	usage   *status.Usage
	err     error
	reading chan struct{} // closed when who looks is done; nil: nobody does
	ended   bool          // nobody may look any more
}

// lookLimit is how long to wait for the disk.
const statTimeout = 200 * time.Millisecond

// take has somebody look, unless somebody does, and waits a while for what is seen.
func (v *usageCache) take(look func() (*status.Usage, error)) (*status.Usage, error) {
	select {
	case <-v.start(look):
	case <-time.After(statTimeout):
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.usage, v.err
}

// begin returns what is closed when somebody has looked.
func (v *usageCache) start(look func() (*status.Usage, error)) <-chan struct{} {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.reading == nil && v.ended {
		seen := make(chan struct{})
		close(seen)
		return seen
	}
	if v.reading == nil {
		v.reading = make(chan struct{})
		go v.read(look)
	}
	return v.reading
}

// end waits until nobody looks: the disk is about to be closed.
func (v *usageCache) end() {
	v.mu.Lock()
	v.ended = true
	looking := v.reading
	v.mu.Unlock()
	if looking != nil {
		<-looking
	}
}

func (v *usageCache) read(look func() (*status.Usage, error)) {
	held, err := look()
	v.mu.Lock()
	defer v.mu.Unlock()
	v.usage, v.err = held, err
	close(v.reading)
	v.reading = nil
}

// instant is a time in nanoseconds since the epoch; nil for zero.
func instant(ns uint64) *time.Time {
	if ns == 0 {
		return nil
	}
	t := time.Unix(0, int64(ns))
	return &t
}

// filesHeld counts the files, and finds the first packet.
func (s *Manager) fileUsage(h *status.Usage) error {
	found, err := s.names.list()
	if err != nil {
		return err
	}
	for _, e := range found {
		var st unix.Stat_t
		if e.Prepared || unix.Stat(e.Path, &st) != nil { // it was removed meanwhile
			continue
		}
		h.Segments++
		h.Bytes += uint64(st.Blocks) * 512
		if h.Oldest == nil {
			t, _ := timesOf(e.Path, pcapng.FirstTime) // a file that cannot be read has none
			h.Oldest = instant(t.First)
		}
	}
	return nil
}

// newestInFiles is the time of the last packet in the files, which are complete.
func (s *Manager) newestInFiles() uint64 {
	found, err := s.names.list()
	if err != nil {
		return 0 // nothing depends on it
	}
	for i := len(found) - 1; i >= 0; i-- {
		if t, err := timesOf(found[i].Path, pcapng.ReadTimes); err == nil && t.Last != 0 {
			return t.Last
		}
	}
	return 0
}

func timesOf(path string, read func(io.ReaderAt, int64) (pcapng.Times, error)) (t pcapng.Times, err error) {
	f, err := os.Open(path)
	if err != nil {
		return t, err
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return t, err
	}
	return read(f, size)
}

// held describes the ring, of which a run has taken so many segments, and finds the
// first packet. What was in a slot is gone once the slot is prepared again.
func (d *ringDevice) usage(h *status.Usage, taken uint64) (err error) {
	begun, oldest := d.prepared.Load(), uint64(0)
	h.Ring = &status.Ring{Slots: d.Slots, SegmentBytes: d.Size}
	for _, g := range d.generations(taken) {
		h.Ring.Generation = g
		if g+d.Slots <= begun {
			continue
		}
		h.Segments++
		h.Bytes += d.Size
		if oldest == 0 {
			oldest, err = d.firstTime(g)
		}
		if err != nil && !errors.Is(err, os.ErrClosed) { // the flow has ended meanwhile
			return err
		}
	}
	h.Oldest = instant(oldest)
	return nil
}

// begin is the time of the first packet of a generation, read once.
func (d *ringDevice) firstTime(generation uint64) (ns uint64, err error) {
	d.oldest.Lock()
	defer d.oldest.Unlock()
	if d.oldest.generation == generation && d.oldest.ns != 0 {
		return d.oldest.ns, nil
	}
	d.dropCache(d.Offset(generation), d.Size)
	ns, err = d.Begin(d.file, generation)
	d.oldest.generation, d.oldest.ns = generation, ns
	return ns, err
}

// generations are those of earlier runs and of this one, which has taken so many
// segments.
func (d *ringDevice) generations(taken uint64) []uint64 {
	all := d.earlier[:len(d.earlier):len(d.earlier)]
	for g := d.first; g < d.first+taken; g++ {
		all = append(all, g)
	}
	return all
}

// newest is the time of the last packet of the segments found, which are complete.
func (d *ringDevice) newestTime() (ns uint64, err error) {
	d.dropCaches()
	for i := len(d.earlier) - 1; i >= 0 && ns == 0 && err == nil; i-- {
		ns, err = d.Latest(d.file, d.earlier[i])
	}
	return ns, err
}
