package afxdp

import (
	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/layout"
	"github.com/unifiedd/unifiedd/flows/pipeline"
	"github.com/unifiedd/unifiedd/xdp"
)

// ringLength returns the length of each ring: the configured one, or the longest for which the
// flow's quota of frames suffices. With longer rings the worker may stall longer before packets are
// lost.
func ringLength(e *pipeline.Env, names []string) (int, error) {
	from := e.Flow.From
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
	return longestRing(ringQuota(e), queues), nil
}

// ringQuota returns the number of frames that the rings may have. The other half is for flows that
// a reload adds; unifiedd capture has one flow and keeps no such half. Writes in place have as many
// frames as the rings.
func ringQuota(e *pipeline.Env) int {
	frames := e.Shared.Quota.Frames - 2*layout.MaxWriteFrames
	if !e.Flow.To.Exact {
		frames /= 2
	}
	if e.Flow.To.Layout == config.LayoutSlot {
		frames = (frames - layout.MaxWrites*layout.MaxWriteFrames) / 2
	}
	return frames
}

// longestRing returns the longest ring for which the frames suffice, or the shortest permitted
// ring.
func longestRing(frames, queues int) int {
	ring := config.MaxRing
	for ring > config.MinRing && ring*queues > frames {
		ring /= 2
	}
	return ring
}
