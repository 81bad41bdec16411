package flows

import (
	"github.com/unifiedd/unifiedd/flows/layout"
	"time"

	"github.com/unifiedd/unifiedd/umem"
)

// makeRoom has flows give back what is more than their part of the region, now that there
// are more flows. What is on its way comes back in a moment; a flow keeps what it needs at
// least.
func (d *Daemon) makeRoom(kept []*Flow) {
	part := d.share()
	for deadline := time.Now().Add(2 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		over := false
		for _, f := range kept {
			over = f.shrink(part) || over
		}
		if !over {
			return
		}
	}
}

// shrinker is a run of which others may have memory that it does not need.
type shrinker interface {
	// shrink gives back what is more than its part, on the worker's thread, and reports
	// whether there is still more.
	shrink(part sharing) (over bool)
}

// shrink has the run give back what is more than its part, and reports whether there is
// still more.
func (f *Flow) shrink(part sharing) (over bool) {
	if r, ok := f.running().(shrinker); ok {
		// Without the worker's thread there is no flow either.
		_ = f.worker.Do(func() error { over = r.shrink(part); return nil })
	}
	return over
}

func (n *networkStorage) shrink(part sharing) bool {
	frames, extents := n.intake.shrink(part), n.writer.shrink(part)
	return frames || extents
}

func (l *rdmaStorage) shrink(part sharing) bool {
	messages, extents := l.inbox.shrink(part), l.writer.shrink(part)
	return messages || extents
}

func (n *intake) shrink(part sharing) bool {
	return giveBack(n.hands, n.spare, &n.total, max(part.frames, n.least))
}

func (b *inbox) shrink(part sharing) bool {
	mine := part.frames
	if b.long {
		mine = part.extents - layoutExtents
	}
	return giveBack(b.hands, b.spare, &b.total, max(mine, b.least))
}

// shrink gives back extents of the packed layout. A stream has its daemon for itself.
func (w *writer) shrink(part sharing) bool {
	p, ok := w.layout.(*layout.Packed)
	return ok && w.hands != nil && p.ReleaseExcess(w.hands, max(part.extents, leastExtents))
}

// giveBack gives those back that are spare, while there are more than are kept in all, and
// reports whether there still are.
func giveBack(hands *umem.Holder, spare *umem.FreeList, total *int, keep int) (over bool) {
	*total -= spare.ReleaseExcess(*total-keep, hands)
	return *total > keep
}
