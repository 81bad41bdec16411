package status

import (
	"time"

	"github.com/unifiedd/unifiedd/internal/latency"
)

// Flow is one flow: packets received and forwarded, losses and their reasons, copies, and the
// durable position.
type Flow struct {
	Name string `json:"name"`
	// Kind is network-storage, rdma-storage, network-rdma, storage-rdma or rdma-rdma, or has null for a
	// generated or discarded end.
	Kind string `json:"kind"`
	// State is the state of a flow.
	State State     `json:"state"`
	Since time.Time `json:"since"`           // of the state
	Error string    `json:"error,omitempty"` // why the flow failed, or what it waits for
	Cause Cause     `json:"cause,omitempty"` // its kind: disk_full, disk_silent, interface_down, interface_gone or peer_away; empty: another
	From  string    `json:"from"`
	To    string    `json:"to"`
	// ConfiguredAs maps first names of interfaces to the alternative names in the configuration.
	ConfiguredAs map[string]string `json:"configured_as,omitempty"`

	Worker string `json:"worker"`
	Layout string `json:"layout"`
	Filter string `json:"filter,omitempty"`

	Rules        []Rule        `json:"rules,omitempty" label:"interface=^From,rule=Name,op=Action"` // of the filter, in order
	FilterCounts []FilterCount `json:"filter_counts,omitempty" label:"interface=^From,reason=Name"` // of the user's own program

	// Engine is how a flow to storage receives packets of an interface: xdp or packet. WhyEngine is the
	// reason, if the flow may choose.
	Engine    string  `json:"engine,omitempty"`
	WhyEngine string  `json:"why_engine,omitempty"`
	Buffer    *Buffer `json:"buffer,omitempty" label:"interface=^From"` // of a packet socket
	Fanout    string  `json:"fanout,omitempty"`                         // name of the group of flows that divide the packets

	Joined []Joined `json:"joined,omitempty" label:"group=Group,source=Source,interface=Interface"` // multicast groups

	ZeroCopy    bool     `json:"zero_copy"`                // granted by the driver
	WhyNot      string   `json:"why_not,omitempty"`        // if it was not granted
	Steered     []string `json:"steered,omitempty"`        // the flow's rules in the card, and the queue of each
	NotSteered  string   `json:"not_steered,omitempty"`    // why there are none, if steering is preferred
	TagsLost    bool     `json:"vlan_tags_lost,omitempty"` // the card removes VLAN tags from packets
	CardClock   bool     `json:"card_clock"`               // times are the card's, for packets that it stamped
	PTPClock    *int     `json:"ptp_clock,omitempty"`      // N in /dev/ptpN, if the driver reports it
	NoCardClock string   `json:"no_card_clock,omitempty"`  // why not, if it is preferred
	NoArrival   string   `json:"no_arrival,omitempty"`     // why times are those of reading by the worker
	CardStamped uint64   `json:"card_stamped"`             // packets that the card stamped
	MultiBuffer bool     `json:"multi_buffer"`             // long packets span frames
	Attach      string   `json:"attach"`                   // driver or generic
	Beside      string   `json:"beside,omitempty"`         // the dispatcher that the XDP program joined
	Ring        int      `json:"ring,omitempty"`           // entries of each ring of a receive queue
	Left        []uint32 `json:"left_queues,omitempty"`    // queues whose traffic stays with the kernel
	Mirrors     []string `json:"mirrors,omitempty"`        // mirrored directions; the host keeps the packets

	CardNode  *int      `json:"card_node,omitempty"` // NUMA nodes, if the kernel reports them
	DiskNode  *int      `json:"disk_node,omitempty"`
	Restarts  uint64    `json:"restarts" metric:"flow_restarts_total"` // how often it started again by itself
	NextStart time.Time `json:"next_start,omitzero"`                   // of a flow that has failed: when that is tried again

	Far []string `json:"far,omitempty"` // devices on another NUMA node than the region

	Interfaces []Interface `json:"interfaces,omitempty"` // if there are several

	Packets uint64  `json:"packets"` // received from the rings
	Bytes   uint64  `json:"bytes"`
	PPS     float64 `json:"packets_per_second"` // over the last second
	BPS     float64 `json:"bits_per_second"`

	// Offered = Passed + Packets + Waiting + Dropped + Missing. The reasons beyond_count and
	// write_failed in Dropped do not count here: Packets includes them.
	Offered uint64            `json:"offered"`          // arrived at the interface
	Missing int64             `json:"missing"`          // 0 at rest; counters are not read at the same instant
	Waiting uint64            `json:"waiting"`          // in the receive rings now
	Passed  map[string]uint64 `json:"passed"`           // left to the kernel, by reason
	Dropped map[string]uint64 `json:"dropped"`          // lost, by reason
	LostAt  time.Time         `json:"lost_at,omitzero"` // when something was last lost, to a second

	Written Position          `json:"written"` // prefix without a gap
	Durable Position          `json:"durable"`
	Held    *Usage            `json:"held,omitempty"`                                                    // nil: one file, or a stream
	Removed map[string]uint64 `json:"removed_segments,omitempty" metric:"removed_segments_total,reason"` // complete segments deleted, by setting
	Floor   *FreeSpace        `json:"floor,omitempty"`                                                   // nil: no free-space reserve
	Cut     *Truncated        `json:"cut,omitempty"`                                                     // nil: packets are kept whole
	Index   *Index            `json:"index,omitempty"`                                                   // nil: segments have no index

	CopiedBytes map[string]uint64 `json:"copied_bytes" metric:"copied_bytes_total,reason"`               // by unifiedd, by reason
	KernelBytes map[string]uint64 `json:"kernel_copied_bytes" metric:"kernel_copied_bytes_total,device"` // by the kernel, by device
	DiskBytes   uint64            `json:"disk_bytes" metric:"disk_written_bytes_total"`
	DiskErrors  map[string]uint64 `json:"disk_errors" metric:"disk_errors_total,reason"` // writes and flushes that failed, by reason
	Stalls      uint64            `json:"stalls" metric:"stalls_total"`                  // rounds in which something waited for the sink: a disk, peers, or the interface of a replay
	Refused     uint64            `json:"refused_wakeups"`                               // wake-ups refused while the interface was down
	Segments    uint64            `json:"segments" metric:"segments_total"`

	Receives   *Receives        `json:"receives,omitempty"`                        // messages of RDMA clients; they count as packets
	Sends      *Sends           `json:"sends,omitempty"`                           // to RDMA peers
	Submits    *Submits         `json:"submits,omitempty" label:"program=Program"` // messages of an attached program; they count as packets
	Gives      *Gives           `json:"gives,omitempty" label:"program=Program"`   // to an attached program
	Orders     *Orders          `json:"orders,omitempty"`                          // to an exchange
	Arrives    *Arrives         `json:"arrives,omitempty" label:"channel=Channel"` // from a peer, to a channel
	Updates    *Updates         `json:"updates,omitempty"`                         // of a state
	Blocks     *Blocks          `json:"blocks,omitempty"`                          // to RDMA clients; requests served count as packets
	Hosts      *Hosts           `json:"hosts,omitempty"`                           // to NVMe hosts; commands count as packets
	Replay     *Replay          `json:"replay,omitempty" label:"interface=^To"`    // captures; sent packets count as packets
	Stages     []Stage          `json:"stages,omitempty" label:"op=Kind"`
	Feed       *Feed            `json:"feed,omitempty"` // messages in order; nil: packets pass as they are
	Log        *Log             `json:"log,omitempty"`
	Group      *Group           `json:"group,omitempty"`
	Level      *Watermarks      `json:"level,omitempty"`                                 // nil: blocks are served
	Generated  *Generated       `json:"generated,omitempty"`                             // generated packets; they count as packets
	Discarded  *Discarded       `json:"discarded,omitempty"`                             // nil: the flow discards nothing
	FrameTimes *FrameTimes      `json:"frame_times,omitempty"`                           // nil: blocks are served
	Latency    *latency.Summary `json:"latency,omitempty" metric:"flow_latency_seconds"` // from arrival to acknowledgement or answer; nil: none yet, or not measured
}

// Joined is a multicast group that the host joined for a flow.
type Joined struct {
	Group     string `json:"group"`
	Source    string `json:"source,omitempty"` // empty: any
	Interface string `json:"interface"`
	Error     string `json:"error,omitempty" metric:"joined,="` // why the host is not a member now
}

// Position is a place in a flow's output.
type Position struct {
	Packets uint64 `json:"packets"` // of the flow, up to here
	Bytes   uint64 `json:"bytes"`   // of those packets
	File    string `json:"file,omitempty"`
	Offset  uint64 `json:"offset"` // in File
}

// Interface is one of several interfaces from which a flow takes packets. The flow has the sums.
type Interface struct {
	Name     string            `json:"name"`
	ZeroCopy bool              `json:"zero_copy"`
	Offered  uint64            `json:"offered"`  // packets that arrived
	Received uint64            `json:"received"` // packets received from the rings
	Dropped  map[string]uint64 `json:"dropped"`  // lost, by reason
}

// Buffer is the ring of a packet socket.
type Buffer struct {
	Bytes    uint64 `json:"bytes"`
	Blocks   int    `json:"blocks" metric:"buffer_blocks"`
	Held     int    `json:"held" metric:"buffer_held_blocks"` // blocks that the kernel cannot fill: they wait for the disk
	Received uint64 `json:"received_blocks"`                  // filled so far
	Full     uint64 `json:"full" metric:"buffer_full_total"`  // how often no block was free
	Pinned   bool   `json:"pinned_each_time,omitempty"`       // the limit of locked memory, or a kernel before 6.5, did not allow to register it
	Last     *Drops `json:"last_drops,omitempty"`
}

// Drops is the last time in which the kernel dropped packets because no block was free. Times are exact to a
// second.
type Drops struct {
	Since   time.Time `json:"since"`
	Until   time.Time `json:"until"`
	Packets uint64    `json:"packets"`
}

// Rule is a rule of a flow's filter, with counters since the rule was set.
type Rule struct {
	Name    string `json:"name"`
	Match   string `json:"match,omitempty"` // as parsed; empty: every packet
	Action  string `json:"action"`
	Packets uint64 `json:"packets" metric:"rule_packets_total"`
	Bytes   uint64 `json:"bytes" metric:"rule_bytes_total"`
}

// FilterCount is a counter of the user's own program.
type FilterCount struct {
	Name  string `json:"name"`
	Value uint64 `json:"value" metric:"filter_count"`
}

// Stage has the counters of a stage.
type Stage struct {
	Kind    string            `json:"kind"`
	Changed uint64            `json:"changed" metric:"stage_changed_total"`  // packets changed, or messages added
	Left    map[string]uint64 `json:"left" metric:"stage_left_total,reason"` // packets left unchanged, by reason
}

// Feed is a feed of several lines whose messages the flow puts in order.
type Feed struct {
	Session  string     `json:"session,omitempty"`                        // empty: none yet
	Messages uint64     `json:"messages" metric:"feed_messages_total"`    // given out, each once and in order
	Lost     uint64     `json:"lost" metric:"feed_lost_messages_total"`   // messages of declared gaps
	Gaps     uint64     `json:"gaps" metric:"feed_gaps_total"`            // declared
	Requests uint64     `json:"requests" metric:"feed_requests_total"`    // to the retransmission server
	Unsent   uint64     `json:"unsent_requests"`                          // of those, requests that the kernel did not take
	Sessions uint64     `json:"sessions" metric:"feed_sessions_total"`    // begun
	Restarts uint64     `json:"restarts" metric:"feed_restarts_total"`    // of those, sessions that the sender has begun by a restart, without a new name
	Ends     uint64     `json:"ends"`                                     // ends of sessions that were announced
	Empty    uint64     `json:"empty"`                                    // messages without bytes, which are not passed on
	Others   uint64     `json:"others" metric:"feed_other_packets_total"` // packets that are of no line, or no whole UDP datagram in one frame
	Lines    []FeedLine `json:"lines" label:"line=Name"`                  // as configured, and then the retransmission server
}

// FeedLine is one line of a feed.
type FeedLine struct {
	Name       string            `json:"name"`
	Wins       uint64            `json:"wins" metric:"feed_line_wins_total"`                      // messages of which this line's copy was the first
	Duplicates uint64            `json:"duplicates" metric:"feed_line_duplicates_total"`          // messages that were there already
	Missing    uint64            `json:"missing" metric:"feed_line_missing_total"`                // messages that the line left out
	Late       uint64            `json:"late" metric:"feed_line_late_total"`                      // messages that came behind later ones of the line
	Refused    map[string]uint64 `json:"refused" metric:"feed_line_refused_packets_total,reason"` // packets that gave no message, by reason
}

// Watermarks is the number of frames in flight between source and sink. Each frame of an extent
// counts.
type Watermarks struct {
	Held   int64   `json:"held" metric:"flow_held_frames"`
	Most   int64   `json:"most"`                                              // largest number so far
	High   int     `json:"high,omitempty"`                                    // the flow stops receiving here; 0: never
	Low    int     `json:"low,omitempty"`                                     // and continues here
	Pauses uint64  `json:"pauses" metric:"flow_pauses_total"`                 // times that receiving stopped
	Paused float64 `json:"paused_seconds" metric:"flow_paused_seconds_total"` // total time stopped
}

// FrameTimes has the times from a packet's arrival to its processing.
type FrameTimes struct {
	Submitted *latency.Distribution `json:"submitted,omitempty" metric:"frame_latency_seconds,status:submitted"` // until the sink passed them to its device
	Done      *latency.Distribution `json:"done,omitempty" metric:"frame_latency_seconds,status:done"`           // until written, acknowledged or discarded
}

// Generated is the source of a flow that generates packets. They count as received.
type Generated struct {
	Length uint32 `json:"length"` // bytes of each
	Rate   uint64 `json:"rate"`   // per second; 0: as many as the sink takes
}

// Discarded is the sink of a flow that discards everything.
type Discarded struct {
	Packets uint64 `json:"packets" metric:"discarded_packets_total"` // or messages
	Bytes   uint64 `json:"bytes"`
}

// State is the state of a flow.
type State string

// The states of a flow.
const (
	Stopped State = "stopped"
	Running State = "running"
	Waiting State = "waiting" // running, and waiting for an outside cause in Error
	Failed  State = "failed"
	Done    State = "done" // took as many packets as configured
)

// Cause is the kind of thing for which a flow waits, or because of which it failed.
type Cause string

// The causes of a flow that waits or failed.
const (
	DiskFull      Cause = "disk_full"
	DiskSilent    Cause = "disk_silent" // it has operations to do, and completes none
	InterfaceDown Cause = "interface_down"
	InterfaceGone Cause = "interface_gone" // or it never was there
	PeerAway      Cause = "peer_away"      // not connected
)

// Up reports whether a flow in this state runs.
func (s State) Up() bool { return s == Running || s == Waiting }
