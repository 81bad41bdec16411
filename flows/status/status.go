// Package status has the documents in which a daemon reports its status: the JSON of `unifiedd
// status --json` and of the page /status. Field names and meanings in JSON are stable. Counters
// count from the start of a flow.
package status

import (
	"time"
)

// Daemon is the status of a running daemon. It is the JSON of `unifiedd status --json`. Counters
// count from the start of the flow.
type Daemon struct {
	Version string    `json:"version"`
	PID     int       `json:"pid"`
	Started time.Time `json:"started"`
	Config  Config    `json:"config"`
	// Region is the region and the holders of its frames. The owners' counts add up to Frames.
	Region  Region       `json:"region"`
	Workers []Worker     `json:"workers"`
	Flows   []Flow       `json:"flows" label:"flow=Name"`
	RDMA    []RDMADevice `json:"rdma_devices,omitempty" label:"device=Name"` // open devices

	Programs *Programs     `json:"attach,omitempty"` // nil: none may attach
	States   []SharedState `json:"states,omitempty" label:"state=Name"`
	Trace    *Trace        `json:"trace,omitempty"` // nil: no flight recorder

	Clock Clock `json:"clock"`
	TLS   *TLS  `json:"tls,omitempty"` // nil: connections are plain

	Cluster *Cluster `json:"cluster,omitempty"` // nil: no resolver finds peers

	Orders *OrdersStopped `json:"orders,omitempty"`
}

// Clock says whether the system's clock was set while the daemon ran. Times in captures and logs jump then.
type Clock struct {
	Steps   uint64        `json:"steps" metric:"clock_steps_total"` // times that it was set by 0.1 s or more, as far as noticed
	Step    time.Duration `json:"last_step_ns,omitempty"`           // the last change; positive: forward
	Noticed *time.Time    `json:"noticed,omitempty"`                // when the status first showed the last one; nil: none yet
}

// TLS is the daemon's certificate.
type TLS struct {
	Name    string    `json:"name"`                                                   // in the certificate
	Expires time.Time `json:"expires" metric:"certificate_expires_timestamp_seconds"` // the first of its chain
	Expired bool      `json:"expired"`                                                // no peer accepts it any more
}

// Trace is the flight recorder.
type Trace struct {
	Directory string `json:"directory"`       // of the files
	Events    int    `json:"events"`          // of each flow
	Error     string `json:"error,omitempty"` // why some or all flows are not recorded
}

// Region is the region and the owners of its frames. The owners' counts add up to Frames.
type Region struct {
	Bytes      uint64           `json:"bytes" metric:"region_bytes"`
	Pages      string           `json:"pages"`
	Device     string           `json:"device,omitempty"`                              // device-DAX device that has the frames; empty: huge pages do
	Ordinary   bool             `json:"ordinary_pages" metric:"region_ordinary_pages"` // the configured fall-back, slower
	FrameSize  uint32           `json:"frame_size"`
	Frames     int64            `json:"frames"`
	Nodes      map[int]uint64   `json:"nodes,omitempty"` // bytes on each NUMA node, as measured
	Owners     map[string]int64 `json:"owners" metric:"frames,owner"`
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

// Stall has the periods in which a worker polled none of its flows.
type Stall struct {
	Count   uint64        `json:"count"`      // periods of at least 20 ms
	Longest time.Duration `json:"longest_ns"` // so far
}
