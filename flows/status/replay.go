package status

import (
	"github.com/unifiedd/unifiedd/internal/latency"
)

// Replay is the source of a flow that sends captures. Packets that the device has taken count as
// packets of the flow.
type Replay struct {
	Pace     string                `json:"pace"`
	Captures int                   `json:"captures"`                                            // files
	Played   uint64                `json:"played" metric:"replay_captures_total"`               // files sent to their end, once per loop
	File     string                `json:"file"`                                                // current file
	Offset   int64                 `json:"offset"`                                              // in File
	Late     uint64                `json:"late" metric:"replay_late_packets_total"`             // packets that left later than allowed
	Allowed  int64                 `json:"allowed_ns"`                                          // how late a packet may leave
	Lateness *latency.Distribution `json:"lateness,omitempty" metric:"replay_lateness_seconds"` // from due time to device; nil: no due times
	Paused   float64               `json:"paused_seconds" metric:"replay_paused_seconds_total"` // interface down; due times shift by this
	Unsent   uint64                `json:"unsent" metric:"replay_unsent_packets_total"`         // dropped by the interface, of any sender
}
