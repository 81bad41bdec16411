// Package status has the documents that a daemon gives about itself: the JSON of
// `unifiedd status --json` and of the page /status. Field names and meanings in
// JSON are stable. Counters count from the start of a flow.
package status

import (
	"time"
)

// Daemon is the status of a running daemon. It is the JSON of `unifiedd status --json`; counters
// count from the start of the flow.
type Daemon struct {
	Version string    `json:"version"`
	PID     int       `json:"pid"`
	Started time.Time `json:"started"`
	Config  Config    `json:"config"`
	// Region is the region and the holders of its frames. The owners' counts add up to Frames.
	Region  Region       `json:"region"`
	Workers []Worker     `json:"workers"`
	Flows   []Flow       `json:"flows"`
	RDMA    []RDMADevice `json:"rdma_devices,omitempty"` // that are open
}

// Region is the region and who holds its frames. The owners' counts add up
// to Frames.
type Region struct {
	Bytes      uint64           `json:"bytes"`
	Pages      string           `json:"pages"`
	Ordinary   bool             `json:"ordinary_pages"` // configured fall-back, slower
	FrameSize  uint32           `json:"frame_size"`
	Frames     int64            `json:"frames"`
	Nodes      map[int]uint64   `json:"nodes,omitempty"` // bytes by NUMA node, where they really are
	Owners     map[string]int64 `json:"owners"`
	Registered []string         `json:"registered"`
}

// Worker is one worker thread.
type Worker struct {
	Name   string `json:"name"`
	CPU    *int   `json:"cpu,omitempty"`
	Node   *int   `json:"node,omitempty"` // NUMA node it runs on
	Wait   string `json:"wait"`
	Rounds uint64 `json:"rounds"`
	Idle   uint64 `json:"idle"`

	Away Stall `json:"away"`
}

// Stall is how long a worker did not look at its flows.
type Stall struct {
	Count   uint64        `json:"count"`      // times of 20 ms and more
	Longest time.Duration `json:"longest_ns"` // so far
}
