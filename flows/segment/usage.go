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

// usage returns the contents of the segments, as of the last time that the disk answered within
// the timeout, or of the end of the run. Any goroutine may call it.
func (s *Manager) usage() (*status.Usage, error) {
	if s.to.Exact {
		return nil, nil
	}
	return s.usageCache.take(s.readUsage)
}

// readUsage reads a few blocks of the disk.
func (s *Manager) readUsage() (*status.Usage, error) {
	h, err := &status.Usage{Unreadable: s.unreadable}, error(nil)
	if s.ring != nil {
		err = s.ring.usage(h, s.acquired.Load())
	} else {
		err = s.fileUsage(h)
	}
	h.Newest = instant(max(s.newestBefore, s.newest()))
	return h, err
}

// Observe adds the segments to a flow's status. Any goroutine may call it. It waits for the disk, at
// most statTimeout.
func (s *Manager) Observe(to *status.Flow) (err error) {
	to.Removed, to.Floor, to.Segments = s.removed.status(), s.space.status(), s.acquired.Load()
	if s.indexer != nil {
		to.Index = s.indexer.status()
	}
	if to.Held, err = s.usage(); err != nil {
		return fmt.Errorf("what the segments hold: %w", err)
	}
	return nil
}

// usageCache is the last result of readUsage. A disk that hangs must not block the status.
type usageCache struct {
	mu      sync.Mutex
	usage   *status.Usage
	err     error
	reading chan struct{} // closed when the reader is done; nil: none runs
	ended   bool          // no new reader may start
}

// statTimeout is how long status waits for the disk.
const statTimeout = 200 * time.Millisecond

// take starts a reader unless one runs, waits for it at most statTimeout and returns the last
// result.
func (v *usageCache) take(look func() (*status.Usage, error)) (*status.Usage, error) {
	select {
	case <-v.start(look):
	case <-time.After(statTimeout):
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.usage, v.err
}

// start starts a reader unless one runs. The returned channel is closed when the reader is done.
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

// end waits for the reader and prevents further ones. Then it reads once more: segments were
// prepared and sealed after the last result. If that fails, the last result stays. After end the
// disk can be closed.
func (v *usageCache) end(look func() (*status.Usage, error)) {
	v.mu.Lock()
	v.ended = true
	looking := v.reading
	v.mu.Unlock()
	if looking != nil {
		<-looking
	}
	if held, err := look(); err == nil {
		v.mu.Lock()
		v.usage, v.err = held, nil
		v.mu.Unlock()
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

// instant converts nanoseconds since 1970; nil for zero.
func instant(ns uint64) *time.Time {
	if ns == 0 {
		return nil
	}
	t := time.Unix(0, int64(ns))
	return &t
}

// fileUsage counts the files and reads the time of the first packet.
func (s *Manager) fileUsage(h *status.Usage) error {
	found, err := s.names.list()
	if err != nil {
		return err
	}
	for _, e := range found {
		var st unix.Stat_t
		if e.Prepared || unix.Stat(e.Path, &st) != nil { // deleted in the meantime
			continue
		}
		h.Segments++
		h.Bytes += uint64(st.Blocks) * 512
		if h.Oldest == nil {
			t, _ := timesOf(e.Path, pcapng.FirstTime) // an unreadable file has no time
			h.Oldest = instant(t.First)
		}
	}
	return nil
}

// newestInFiles returns the time of the last packet in the files, which are complete.
func (s *Manager) newestInFiles() uint64 {
	found, err := s.names.list()
	if err != nil {
		return 0 // the time is informative only
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

// usage describes the ring of a run that acquired taken segments. Preparing a slot removes its old
// packets.
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
		if err != nil && !errors.Is(err, os.ErrClosed) { // closed: the flow has ended
			return err
		}
	}
	h.Oldest = instant(oldest)
	return nil
}

// firstTime returns the time of a generation's first packet. It reads the time once.
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

// generations returns the generations of earlier runs and of this run, which acquired taken
// segments.
func (d *ringDevice) generations(taken uint64) []uint64 {
	all := d.earlier[:len(d.earlier):len(d.earlier)]
	for g := d.first; g < d.first+taken; g++ {
		all = append(all, g)
	}
	return all
}

// newestTime returns the time of the last packet in the earlier segments, which are complete.
func (d *ringDevice) newestTime() (ns uint64, err error) {
	d.dropCaches()
	for i := len(d.earlier) - 1; i >= 0 && ns == 0 && err == nil; i-- {
		ns, err = d.Latest(d.file, d.earlier[i])
	}
	return ns, err
}
