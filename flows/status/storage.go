package status

import (
	"time"
)

// Usage is the size of a flow's segments, including those of earlier runs.
type Usage struct {
	Segments uint64     `json:"segments"`         // including the one being written
	Bytes    uint64     `json:"bytes"`            // on the disk, including prepared space
	Oldest   *time.Time `json:"oldest,omitempty"` // time of the first packet; nil: unknown or no packets
	Newest   *time.Time `json:"newest,omitempty"` // time of the last packet written
	// Unreadable is the number of segments without a readable head when the flow began. Their packets
	// are not available.
	Unreadable uint64 `json:"unreadable_segments,omitempty" metric:"unreadable_segments"`
	Ring       *Ring  `json:"ring,omitempty"` // nil: files
}

// Ring is the geometry of a ring on a device.
type Ring struct {
	Slots        uint64 `json:"slots"`
	SegmentBytes uint64 `json:"segment_bytes"` // of each slot
	Generation   uint64 `json:"generation"`    // of the newest segment in use; 0: none yet
}

// FreeSpace is the free-space reserve of a flow.
type FreeSpace struct {
	KeepFree string  `json:"keep_free"`                         // as configured
	Bytes    uint64  `json:"bytes" metric:"disk_floor_bytes"`   // size of the reserve
	Free     uint64  `json:"free" metric:"disk_free_bytes"`     // bytes free on the disk, when last measured
	Size     uint64  `json:"size"`                              // bytes of the disk
	Pauses   uint64  `json:"pauses" metric:"disk_pauses_total"` // times that the reserve blocked writing
	Paused   float64 `json:"paused_seconds" metric:"disk_paused_seconds_total"`
}

// Truncated has the counters of a snapshot length.
type Truncated struct {
	SnapLen uint32 `json:"snaplen"`                            // largest number of bytes kept of a packet
	Packets uint64 `json:"packets" metric:"cut_packets_total"` // packets that were longer
	Bytes   uint64 `json:"bytes" metric:"cut_bytes_total"`     // bytes omitted
}

// Index is the state of the indexes of a flow's segments.
type Index struct {
	Segments uint64        `json:"segments" metric:"index_segments_total"`  // indexed by this run
	Waiting  uint64        `json:"waiting" metric:"index_waiting_segments"` // complete segments without an index yet
	Failed   uint64        `json:"failed" metric:"index_failures_total"`    // segments without an index until the next start
	Bytes    uint64        `json:"bytes" metric:"index_bytes_total"`        // of the indexes
	CPU      time.Duration `json:"cpu_ns" metric:"index_cpu_seconds_total"` // used to make the indexes
}

// Log is the progress of a log, in positions. Each message has one; the first message ever has
// position 1. Lost counts records of the newest segments only.
type Log struct {
	Acknowledge  string `json:"acknowledge"`                                  // condition of an acknowledgement
	First        uint64 `json:"first"`                                        // of this run; the message may not exist yet
	Last         uint64 `json:"last" metric:"log_position,status:received"`   // last position assigned
	Written      uint64 `json:"written" metric:"log_position,status:written"` // all messages up to this one are written
	Durable      uint64 `json:"durable" metric:"log_position,status:durable"`
	Acknowledged uint64 `json:"acknowledged" metric:"log_position,status:acknowledged"`
	Lost         uint64 `json:"lost" metric:"log_lost_messages"` // durable in earlier runs, missing at the start of this run
}
