package status

import (
	"github.com/unifiedd/unifiedd/internal/latency"
)

// Replay is what was sent of captures. Packets given to the device count as packets of the flow.
type Replay struct {
	Pace     string                `json:"pace"`
	Captures int                   `json:"captures"`           // files
	Played   uint64                `json:"played"`             // that were sent to their ends, each time that they were
	File     string                `json:"file"`               // that is being sent
	Offset   int64                 `json:"offset"`             // in it
	Late     uint64                `json:"late"`               // packets that left later than allowed
	Allowed  int64                 `json:"allowed_ns"`         // that is
	Lateness *latency.Distribution `json:"lateness,omitempty"` // from a packet's time until the device had taken it; nil: none had one
	Paused   float64               `json:"paused_seconds"`     // for which the interface was down, and time stood still
	Unsent   uint64                `json:"unsent"`             // packets that the interface dropped, from whoever they were
}
