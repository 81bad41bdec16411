package nvme

import (
	"errors"
	"slices"
	"sync"

	"github.com/unifiedd/unifiedd/umem"
)

// controls has the pieces of control areas that rings lie in, by region, in
// ascending order. A region is in the map while it has a piece.
var controls = struct {
	mu     sync.Mutex
	pieces map[*umem.Region][]*controlPiece
}{pieces: make(map[*umem.Region][]*controlPiece)}

// controlPiece is a run of pages of a region's control area.
type controlPiece struct {
	region *umem.Region
	off    uint64
	mem    []byte
}

// errNoControl says that the control area is absent or full; the ring goes
// elsewhere then.
var errNoControl = errors.New("the region's control area has no room for the rings")

// takeControl finds the first gap of size bytes, whole pages, in the region's
// control area.
func takeControl(region *umem.Region, size uint64) (*controlPiece, error) {
	controls.mu.Lock()
	defer controls.mu.Unlock()
	area := region.Control()
	taken := controls.pieces[region]
	off, at := uint64(0), 0
	for at < len(taken) && off+size > taken[at].off {
		off = inOnePage(taken[at].off+uint64(len(taken[at].mem)), size)
		at++
	}
	if off+size > uint64(len(area)) {
		return nil, errNoControl
	}
	p := &controlPiece{region: region, off: off, mem: area[off : off+size : off+size]}
	controls.pieces[region] = slices.Insert(taken, at, p)
	return p, nil
}

// inOnePage moves an offset on to the next huge page where size bytes would
// otherwise lie in two: kernels before 6.9 want a ring's memory in one piece.
func inOnePage(off, size uint64) uint64 {
	const page = 2 << 20
	if size <= page && off/page != (off+size-1)/page {
		return roundUp(off, page)
	}
	return off
}

// release puts the piece back. Releasing again does nothing.
func (p *controlPiece) release() {
	controls.mu.Lock()
	defer controls.mu.Unlock()
	taken := controls.pieces[p.region]
	i := slices.Index(taken, p)
	if i < 0 {
		return
	}
	if taken = slices.Delete(taken, i, i+1); len(taken) == 0 {
		delete(controls.pieces, p.region)
		return
	}
	controls.pieces[p.region] = taken
}
