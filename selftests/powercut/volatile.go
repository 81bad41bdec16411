package powercut

import (
	"bytes"
	"io"
	"math/rand/v2"
	"sync"
)

// Volatile is a disk with a volatile cache, whose power can be cut while a system runs on it. After Cut the old
// system goes on with what it has written, which is lost, so that it can be taken down in order. Restore gives
// the next system what the cut has left. Any goroutine may use a Volatile.
type Volatile struct {
	mu      sync.Mutex
	now     []byte  // what reads return
	durable []byte  // what was written before the last flush
	pending []Entry // writes since then, in order
	left    []byte  // by the last cut; nil: there was none since Restore
	lies    bool    // flushes make nothing durable
}

// NewVolatile makes a disk with that content.
func NewVolatile(image []byte) *Volatile {
	return &Volatile{now: bytes.Clone(image), durable: bytes.Clone(image)}
}

// Size returns the number of bytes.
func (v *Volatile) Size() int64 { return int64(len(v.now)) }

// ReadAt implements io.ReaderAt.
func (v *Volatile) ReadAt(p []byte, at int64) (int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if at < 0 || at >= int64(len(v.now)) {
		return 0, io.EOF
	}
	n := copy(p, v.now[at:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// WriteAt implements io.WriterAt.
func (v *Volatile) WriteAt(p []byte, at int64) (int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if at < 0 || at+int64(len(p)) > int64(len(v.now)) {
		return 0, io.ErrShortWrite
	}
	copy(v.now[at:], p)
	if v.left == nil {
		v.pending = append(v.pending, Entry{Offset: at, Length: int64(len(p)), Data: bytes.Clone(p)})
	}
	return len(p), nil
}

// Sync makes everything durable that was written before.
func (v *Volatile) Sync() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.left != nil || v.lies {
		return nil
	}
	for _, e := range v.pending {
		e.apply(v.durable)
	}
	v.pending = nil
	return nil
}

// Lie makes the disk ignore flushes from now on.
func (v *Volatile) Lie() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.lies = true
}

// Cut cuts the power: of what was written since the last flush, f and r decide what is left.
func (v *Volatile) Cut(f Fate, r *rand.Rand) Cut {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.left = bytes.Clone(v.durable)
	l := Log{Sector: sector, Entries: v.pending}
	return l.cut(v.left, len(l.Entries), 0, f, r)
}

// Restore brings the power back. Nobody has the disk open.
func (v *Volatile) Restore() {
	v.mu.Lock()
	defer v.mu.Unlock()
	copy(v.now, v.left)
	v.durable, v.left, v.pending = v.left, nil, nil
}

// AnyFate draws a fate.
func AnyFate(r *rand.Rand) Fate { return Fate(r.IntN(int(fates))) }
