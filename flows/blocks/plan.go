package blocks

import (
	"fmt"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/umem"
)

// The two caches of a server.
const (
	frameCache = iota
	extentCache
	shelves
)

// plan is the use of a region by a server with a configuration.
type plan struct {
	clients, window, depth int
	size                   uint64 // bytes served: whole blocks of the target
	align                  uint64 // of offsets and lengths
	transfer               uint64 // bytes of the longest request
	keep                   bool
	frame, extent          uint64 // bytes; 0: none, or none that fit the target
	control                uint64 // bytes of a frame, for control messages
	most                   int    // buffers of one request
	caches                 [shelves]cachePlan
}

// cachePlan is the number of buffers of a kind, and the reserve of each client.
type cachePlan struct{ buffers, reserve int }

func newPlan(c Config, r *umem.Region) (*plan, error) {
	a := c.Target.Alignment()
	p := &plan{clients: c.Clients, window: c.Window, depth: c.Depth, align: uint64(max(a.Offset, 1)), transfer: uint64(c.Transfer),
		keep: c.Cache > 0, control: uint64(r.FrameSize())}
	p.size = c.Target.Size() &^ (p.align - 1)
	if p.size == 0 {
		return nil, fmt.Errorf("%s has %d bytes: nothing that could be served in blocks of %d", c.Target.Path(), c.Target.Size(), p.align)
	}
	if fits := uint64(max(a.Offset, a.Memory)); fits <= uint64(r.FrameSize()) {
		p.frame = uint64(r.FrameSize())
	}
	if r.Extents() > 0 && r.ExtentSize() >= p.align {
		p.extent = r.ExtentSize()
	}
	if p.frame == 0 && p.extent == 0 {
		return nil, fmt.Errorf("%s wants blocks of %d bytes, and the region has frames of %d and no extents: give it some (region.extents)", c.Target.Path(), p.align, r.FrameSize())
	}
	if p.transfer < p.align {
		return nil, fmt.Errorf("requests of at most %d bytes: %s is read in blocks of %d", p.transfer, c.Target.Path(), p.align)
	}
	p.share(c)
	return p, nil
}

// share computes the numbers of buffers.
func (p *plan) share(c Config) {
	f, e := &p.caches[frameCache], &p.caches[extentCache]
	f.reserve, e.reserve = p.longest()
	p.most = max(f.reserve, e.reserve)
	f.buffers, e.buffers = f.reserve*p.clients, e.reserve*p.clients
	if f.reserve > 0 {
		f.buffers += max(p.depth, f.reserve)
	}
	if e.reserve > 0 {
		e.buffers += max(min(p.depth, sharedExtents), e.reserve)
	}
	switch {
	case f.reserve > 0 && e.reserve > 0:
		f.buffers += int(c.Cache / 2 / p.frame)
		e.buffers += int(c.Cache / 2 / p.extent)
	case f.reserve > 0:
		f.buffers += int(c.Cache / p.frame)
	default:
		e.buffers += int(c.Cache / p.extent)
	}
}

// longest returns the largest number of frames and of extents for one request.
func (p *plan) longest() (frames, extents int) {
	if p.extent == 0 {
		n := pieces(p.transfer, p.frame)
		if p.keep && p.transfer > p.align { // a request may begin and end inside a frame
			n++
		}
		return n, 0
	}
	switch {
	case p.frame == 0:
		return 0, pieces(p.transfer, p.extent)
	case p.keep:
		frames = min(pieces(p.transfer, p.frame)+1, keptFrames)
	default:
		frames = 1
	}
	if p.transfer > p.frame {
		extents = pieces(p.transfer, p.extent)
	}
	return frames, extents
}

func pieces(n, each uint64) int { return int((n + each - 1) / each) }

// operations returns the maximum number of operations of a client: those in its window, and as many
// whose answers the client may have although the server does not have their completions yet.
func (p *plan) operations() int { return 2 * p.window }

// receives returns the receives of a client: one more than the window, to detect a client that
// exceeds it.
func (p *plan) receives() int { return p.window + 1 }

// cells returns the number of control buffers: one for each receive, and one for each refusal.
func (p *plan) cells() int { return p.clients * (p.receives() + p.operations()) }

// answerCell returns the control buffer for an operation's refusal.
func (p *plan) answerCell(op int32) int { return p.clients*p.receives() + int(op) }

// cut is the division of a request into buffers.
type cut struct {
	cache int
	n     int    // buffers
	first uint64 // offset of the first
	step  uint64 // from one to the next
	end   uint64 // the largest end of the last
}

// cut divides a checked request. Cached frames lie at multiples of their size, so that other
// requests can use them.
func (p *plan) cut(offset, length uint64) cut {
	end := offset + length
	if p.keep && p.frame > 0 {
		c := cut{cache: frameCache, first: offset &^ (p.frame - 1), step: p.frame, end: p.size}
		c.n = pieces(end-c.first, p.frame)
		if c.n <= keptFrames || p.extent == 0 {
			return c
		}
	}
	c := cut{cache: extentCache, first: offset, step: p.extent, end: end}
	if p.frame > 0 && (length <= p.frame || p.extent == 0) {
		c.cache, c.step = frameCache, p.frame
	}
	c.n = pieces(length, c.step)
	return c
}

// piece returns the offset and length of the k-th buffer.
func (c *cut) piece(k int) (at, length uint64) {
	at = c.first + uint64(k)*c.step
	return at, min(c.step, c.end-at)
}

// check returns the reason for refusing a request, or None. The end of the request's range must not
// exceed 2^64.
func (p *plan) check(q *protocol.Request, may Range) protocol.Reason {
	offset, length := q.Offset, uint64(q.Length)
	switch {
	case length > p.transfer:
		return protocol.TooLong
	case (offset|length)&(p.align-1) != 0:
		return protocol.Unaligned
	case offset+length > p.size:
		return protocol.OutOfRange
	case !may.contains(offset, length):
		return protocol.NotPermitted
	}
	return protocol.None
}
