package capture

import "time"

// meter measures how long processors were idle.
type meter interface{ read() (reading, error) }

// reading is a reading of a meter: a time since some fixed moment, and the idle time of all
// processors since then.
type reading struct{ wall, idle time.Duration }

// busy returns how long the processors were busy between two readings, in sum, and the wall time between
// them.
func busy(from, to reading, processors int) (busy, wall time.Duration) {
	wall = to.wall - from.wall
	return time.Duration(processors)*wall - (to.idle - from.idle), wall
}
