package export

import (
	"cmp"
	"io"
	"slices"

	"github.com/unifiedd/unifiedd/internal/pcapng"
)

const (
	// orderStep is how many bytes of blocks are added before some are written.
	orderStep = 8 << 20
	// orderLimit is the most bytes of blocks in memory: about as many as the rings of a few queues hold. That
	// is how far apart packets of one time may be in a capture.
	orderLimit = 64 << 20
)

// order sorts the packets of several queues or interfaces by time. It keeps those of the newest
// second, and at most orderLimit bytes. A packet older than one that was already written is
// written at once, and counted.
type order struct {
	w       io.Writer
	held    []held
	blocks  []byte // of those held
	looked  int    // length of blocks after the last step
	next    uint64
	newest  uint64 // time
	written uint64 // time of the latest packet that was written
	late    uint64
}

// held is a packet's block in memory.
type held struct {
	time, number uint64
	at, length   int
}

// add copies a packet's block. The caller still owns it.
func (o *order) add(time uint64, block []byte) error {
	o.held = append(o.held, held{time, o.next, len(o.blocks), len(block)})
	o.blocks = append(o.blocks, block...)
	o.next++
	o.newest = max(o.newest, time)
	if len(o.blocks) < o.looked+orderStep {
		return nil
	}
	return o.step()
}

// step writes the packets that are older than the newest one by more than slack, or the older half.
func (o *order) step() error {
	o.sort()
	n, _ := slices.BinarySearchFunc(o.held, o.newest-min(slack, o.newest), func(h held, t uint64) int { return cmp.Compare(h.time, t) })
	if len(o.blocks) >= orderLimit {
		n = max(n, len(o.held)/2)
	}
	return o.write(n)
}

// flush writes all packets in memory.
func (o *order) flush() error {
	o.sort()
	return o.write(len(o.held))
}

// sort orders packets by time, and packets of one time as they came.
func (o *order) sort() {
	slices.SortFunc(o.held, func(a, b held) int {
		return cmp.Or(cmp.Compare(a.time, b.time), cmp.Compare(a.number, b.number))
	})
}

// write writes the first n packets in memory, and moves the others to the front.
func (o *order) write(n int) error {
	for _, h := range o.held[:n] {
		if h.time < o.written {
			o.late++
		}
		o.written = max(o.written, h.time)
		if _, err := o.w.Write(o.blocks[h.at : h.at+h.length]); err != nil {
			return err
		}
	}
	rest := make([]byte, 0, len(o.blocks))
	o.held = o.held[:copy(o.held, o.held[n:])]
	for i := range o.held {
		h := &o.held[i]
		at := len(rest)
		rest = append(rest, o.blocks[h.at:h.at+h.length]...)
		h.at = at
	}
	o.blocks, o.looked = rest, len(rest)
	return nil
}

// mixed reports whether the packets of a segment are of several queues or interfaces, and have times of one clock.
func mixed(head *pcapng.Head) bool {
	for i := range head.Interfaces {
		if head.OwnClock(i) {
			return false
		}
	}
	return len(head.Interfaces) > 1
}
