package status

import (
	"time"

	"github.com/unifiedd/unifiedd/internal/latency"
)

// Flow is one flow: what it received, where it went, what was lost and why, who copied how much,
// and how much is durable.
type Flow struct {
	Name string `json:"name"`
	Kind string `json:"kind"` // what it connects: network-storage, rdma-storage, network-rdma, storage-rdma, rdma-rdma, or with null for an end to measure the other alone
	// State is the state of a flow.
	State State     `json:"state"`
	Since time.Time `json:"since"`           // of the state
	Error string    `json:"error,omitempty"` // why it failed, or what it is waiting for
	From  string    `json:"from"`
	To    string    `json:"to"`
	// ConfiguredAs has the alternative names by which the configuration has interfaces, by their first names.
	ConfiguredAs map[string]string `json:"configured_as,omitempty"`

	Worker string `json:"worker"`
	Layout string `json:"layout"`
	Filter string `json:"filter,omitempty"`

	Rules        []Rule        `json:"rules,omitempty"`         // of the filter, in order
	FilterCounts []FilterCount `json:"filter_counts,omitempty"` // of the user's own program

	ZeroCopy    bool     `json:"zero_copy"`                // granted by the driver
	WhyNot      string   `json:"why_not,omitempty"`        // if it was not
	Steered     []string `json:"steered,omitempty"`        // rules of ours in the card, and the queue of each
	NotSteered  string   `json:"not_steered,omitempty"`    // why there are none, where they were preferred
	TagsLost    bool     `json:"vlan_tags_lost,omitempty"` // the card takes them out of packets
	CardClock   bool     `json:"card_clock"`               // times are the card's, of packets it has one for
	PTPClock    *int     `json:"ptp_clock,omitempty"`      // which clock that is, /dev/ptpN, if the driver says
	NoCardClock string   `json:"no_card_clock,omitempty"`  // why not, where it was preferred
	NoArrival   string   `json:"no_arrival,omitempty"`     // why times are those at which the worker took packets
	CardStamped uint64   `json:"card_stamped"`             // packets with a time of the card
	MultiBuffer bool     `json:"multi_buffer"`             // long packets span frames
	Attach      string   `json:"attach"`                   // driver or generic
	Beside      string   `json:"beside,omitempty"`         // whose dispatcher the XDP program is in
	Ring        int      `json:"ring,omitempty"`           // entries of each ring of a receive queue
	Left        []uint32 `json:"left_queues,omitempty"`    // queues whose traffic stays with the kernel
	Mirrors     []string `json:"mirrors,omitempty"`        // directions that copies are taken of, instead of the packets

	CardNode *int     `json:"card_node,omitempty"` // NUMA nodes, where the kernel says
	DiskNode *int     `json:"disk_node,omitempty"`
	Far      []string `json:"far,omitempty"` // what is on another node than the region

	Interfaces []Interface `json:"interfaces,omitempty"` // where there are several

	Packets uint64  `json:"packets"` // received from the rings
	Bytes   uint64  `json:"bytes"`
	PPS     float64 `json:"packets_per_second"` // over the last second
	BPS     float64 `json:"bits_per_second"`

	// Offered = Passed + Packets + Waiting + Dropped + Missing, but for those of
	// Dropped that Packets has already: beyond_count and write_failed.
	Offered uint64            `json:"offered"` // arrived at the interface
	Missing int64             `json:"missing"` // zero at rest; the counters are read one after the other
	Waiting uint64            `json:"waiting"` // in the receive rings now
	Passed  map[string]uint64 `json:"passed"`  // left to the kernel, by reason
	Dropped map[string]uint64 `json:"dropped"` // lost, by reason

	Written Position          `json:"written"` // prefix without a gap
	Durable Position          `json:"durable"`
	Held    *Usage            `json:"held,omitempty"`             // nil: one file, or a stream
	Removed map[string]uint64 `json:"removed_segments,omitempty"` // complete segments that made room, by what asked for it
	Floor   *FreeSpace        `json:"floor,omitempty"`            // nil: nothing is kept free
	Cut     *Truncated        `json:"cut,omitempty"`              // nil: packets are kept whole
	Index   *Index            `json:"index,omitempty"`            // nil: segments have none

	CopiedBytes map[string]uint64 `json:"copied_bytes"`        // by us, by reason
	KernelBytes map[string]uint64 `json:"kernel_copied_bytes"` // by the kernel, by device
	DiskBytes   uint64            `json:"disk_bytes"`
	DiskErrors  map[string]uint64 `json:"disk_errors"`     // writes and flushes that failed, by reason
	Stalls      uint64            `json:"stalls"`          // rounds in which the disk was too slow to take more
	Refused     uint64            `json:"refused_wakeups"` // the kernel refused, while the interface was down
	Segments    uint64            `json:"segments"`

	Receives   *Receives        `json:"receives,omitempty"` // messages of RDMA clients, which count as packets
	Sends      *Sends           `json:"sends,omitempty"`    // to RDMA peers
	Blocks     *Blocks          `json:"blocks,omitempty"`   // to RDMA clients who ask; requests served count as packets
	Hosts      *Hosts           `json:"hosts,omitempty"`    // to NVMe hosts, whose commands count as packets
	Replay     *Replay          `json:"replay,omitempty"`   // packets of captures that are sent, which count as packets once they are
	Stages     []Stage          `json:"stages,omitempty"`
	Log        *Log             `json:"log,omitempty"`
	Level      *Watermarks      `json:"level,omitempty"`       // nil: blocks are served
	Generated  *Generated       `json:"generated,omitempty"`   // packets that the flow makes, which count as packets
	Discarded  *Discarded       `json:"discarded,omitempty"`   // nil: the flow goes somewhere
	FrameTimes *FrameTimes      `json:"frame_times,omitempty"` // nil: blocks are served
	Latency    *latency.Summary `json:"latency,omitempty"`     // from when a message or request came until it is acknowledged or answered; nil: none was, or it is not told
}

// Position is a place in a flow's output.
type Position struct {
	Packets uint64 `json:"packets"` // of the flow, up to here
	Bytes   uint64 `json:"bytes"`   // of those packets
	File    string `json:"file,omitempty"`
	Offset  uint64 `json:"offset"` // in File
}

// Interface is one of several interfaces that a flow takes packets from. The sums are the flow's.
type Interface struct {
	Name     string            `json:"name"`
	ZeroCopy bool              `json:"zero_copy"`
	Offered  uint64            `json:"offered"`  // packets that arrived
	Received uint64            `json:"received"` // of those, from the rings
	Dropped  map[string]uint64 `json:"dropped"`  // lost, by reason
}

// Rule is a rule of a flow's filter, and what it has matched since it was set.
type Rule struct {
	Name    string `json:"name"`
	Match   string `json:"match,omitempty"` // as it was understood; empty: every packet
	Action  string `json:"action"`
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
}

// FilterCount is a counter of the user's own program.
type FilterCount struct {
	Name  string `json:"name"`
	Value uint64 `json:"value"`
}

// Stage is the counters of a stage.
type Stage struct {
	Kind    string            `json:"kind"`
	Changed uint64            `json:"changed"` // packets that it changed, or messages that it added
	Left    map[string]uint64 `json:"left"`    // packets that it left as they were, by reason
}

// Watermarks is how many frames a flow holds between its ends, those of extents counted each.
type Watermarks struct {
	Held   int64   `json:"held"`
	Most   int64   `json:"most"`           // that it ever held
	High   int     `json:"high,omitempty"` // with so many it takes no more from its source, 0: it takes what there is,
	Low    int     `json:"low,omitempty"`  // until there are so few
	Pauses uint64  `json:"pauses"`         // how often that was
	Paused float64 `json:"paused_seconds"` // and how long
}

// FrameTimes is how long packets took through a flow, from when they arrived.
type FrameTimes struct {
	Submitted *latency.Distribution `json:"submitted,omitempty"` // until the device at the other end was told of them
	Done      *latency.Distribution `json:"done,omitempty"`      // until they were written, acknowledged by a peer, or discarded
}

// Generated is the end of a flow that makes packets, which count as received.
type Generated struct {
	Length uint32 `json:"length"` // bytes of each
	Rate   uint64 `json:"rate"`   // a second; 0: as many as are taken
}

// Discarded is what was discarded, where that is a flow's end.
type Discarded struct {
	Packets uint64 `json:"packets"` // or messages
	Bytes   uint64 `json:"bytes"`
}

// State is where a flow is in its life.
type State string

// The states of a flow.
const (
	Stopped State = "stopped"
	Running State = "running"
	Waiting State = "waiting" // running, and something outside must mend: Error says what
	Failed  State = "failed"
	Done    State = "done" // took the packets it was to take
)

// Up reports whether a flow in this state runs.
func (s State) Up() bool { return s == Running || s == Waiting }
