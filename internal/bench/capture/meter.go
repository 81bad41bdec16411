package capture

import "time"

// meter measures how long processors were idle.
type meter interface{ read() (reading, error) }

// reading is a reading of a meter: a time since some fixed moment, and the idle time of all
// processors since then.
type reading struct{ wall, idle time.Duration }

// busy is how long so many processors were busy between two readings, all added up, and how long that was.
func busy(from, to reading, processors int) (busy, wall time.Duration) {
	wall = to.wall - from.wall
	return time.Duration(processors)*wall - (to.idle - from.idle), wall
}
