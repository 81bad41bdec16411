package capture

import "time"

// meter tells for how long processors were idle.
type meter interface{ read() (reading, error) }

// reading is what a meter said at a moment: the time since any one before it, and for how much of it each processor was
// idle, all added up.
type reading struct{ wall, idle time.Duration }

// busy is how long so many processors were busy between two readings, all added up, and how long that was.
func busy(from, to reading, processors int) (busy, wall time.Duration) {
	wall = to.wall - from.wall
	return time.Duration(processors)*wall - (to.idle - from.idle), wall
}
