package status

import (
	"time"
)

// Usage is the size of a flow's segments, those of earlier runs included.
type Usage struct {
	Segments uint64     `json:"segments"`         // with the one being written
	Bytes    uint64     `json:"bytes"`            // of the disk, space that is prepared for them included
	Oldest   *time.Time `json:"oldest,omitempty"` // the first packet's time; nil: not known, or there is none
	Newest   *time.Time `json:"newest,omitempty"` // the last written one's
	// Unreadable are segments whose heads could not be read when the flow began: what was in them is missing.
	Unreadable uint64 `json:"unreadable_segments,omitempty"`
	Ring       *Ring  `json:"ring,omitempty"` // nil: files
}

// Ring is the geometry of a ring on a device.
type Ring struct {
	Slots        uint64 `json:"slots"`
	SegmentBytes uint64 `json:"segment_bytes"` // of each slot
	Generation   uint64 `json:"generation"`    // of the newest segment in use; 0: none was ever
}

// FreeSpace is the room that a flow leaves free on its disk.
type FreeSpace struct {
	KeepFree string  `json:"keep_free"` // as it is configured
	Bytes    uint64  `json:"bytes"`     // that is
	Free     uint64  `json:"free"`      // bytes of the disk, as seen last
	Pauses   uint64  `json:"pauses"`    // how often nothing could be written for want of room
	Paused   float64 `json:"paused_seconds"`
}

// Truncated is how much a flow with a snapshot length cut off packets.
type Truncated struct {
	SnapLen uint32 `json:"snaplen"` // bytes kept of a packet at most
	Packets uint64 `json:"packets"` // that were longer
	Bytes   uint64 `json:"bytes"`   // of those that were left out
}

// Index is the state of the indexes of a flow's segments.
type Index struct {
	Segments uint64        `json:"segments"` // that have one made by this run
	Waiting  uint64        `json:"waiting"`  // complete segments that have none yet
	Failed   uint64        `json:"failed"`   // segments that stay without one until the next start
	Bytes    uint64        `json:"bytes"`    // of the indexes
	CPU      time.Duration `json:"cpu_ns"`   // it took to make them
}

// Log is how far a log has come, in positions: each message has one, 1 the first that ever came.
type Log struct {
	Acknowledge  string `json:"acknowledge"` // what an acknowledgement means
	First        uint64 `json:"first"`       // of this run, whether it has come or not
	Last         uint64 `json:"last"`        // given to a message
	Written      uint64 `json:"written"`     // all messages up to this one are
	Durable      uint64 `json:"durable"`
	Acknowledged uint64 `json:"acknowledged"`
	Lost         uint64 `json:"lost"` // records that this run found missing when it began, among those of the newest segments, though earlier ones knew them to be durable
}
