package flows

import (
	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/xdp"
)

// ringLength is how long the rings of each queue of a flow's interfaces are: as configured, or, where that is left to us, the longest for
// which the flow's part of the frames suffices. The longer they are, the longer may the worker be away before packets are lost.
func ringLength(o *opening, names []string) (int, error) {
	from := o.flow.From
	if from.Ring != 0 {
		return from.Ring, nil
	}
	queues := len(from.Queues) * len(names)
	for _, name := range names {
		if from.Queues != nil {
			break
		}
		n, err := xdp.Queues(name)
		if err != nil {
			return 0, err
		}
		queues += n
	}
	return longestRing(forRings(o), queues), nil
}

// forRings is how many frames the rings may have. Flows that a reload adds find the other half, but with unifiedd capture, which has no
// other flow. In slot layout frames are with the disk, as many as in the rings.
func forRings(o *opening) int {
	frames := o.shared.frames - 2*chainFrames
	if !o.flow.To.Exact {
		frames /= 2
	}
	if o.flow.To.Layout == config.LayoutSlot {
		frames = (frames - writes*chainFrames) / 2
	}
	return frames
}

// longestRing is the longest ring for which so many frames suffice, or the shortest there is.
func longestRing(frames, queues int) int {
	ring := config.MaxRing
	for ring > config.MinRing && ring*queues > frames {
		ring /= 2
	}
	return ring
}
