package flows

import (
	"time"

	"github.com/unifiedd/unifiedd/internal/latency"
)

// Status is what a running daemon tells about itself. It is the JSON of
// `unifiedd status --json`; counters count from the start of the flow.
type Status struct {
	Version string             `json:"version"`
	PID     int                `json:"pid"`
	Started time.Time          `json:"started"`
	Config  ConfigStatus       `json:"config"`
	Region  RegionStatus       `json:"region"`
	Workers []WorkerStatus     `json:"workers"`
	Flows   []FlowStatus       `json:"flows"`
	RDMA    []RDMADeviceStatus `json:"rdma_devices,omitempty"` // that are open
}

// RegionStatus is the region and who holds its frames. The owners' counts add up
// to Frames.
type RegionStatus struct {
	Bytes      uint64           `json:"bytes"`
	Pages      string           `json:"pages"`
	Ordinary   bool             `json:"ordinary_pages"` // configured fall-back, slower
	FrameSize  uint32           `json:"frame_size"`
	Frames     int64            `json:"frames"`
	Nodes      map[int]uint64   `json:"nodes,omitempty"` // bytes by NUMA node, where they really are
	Owners     map[string]int64 `json:"owners"`
	Registered []string         `json:"registered"`
}

// WorkerStatus is one worker thread.
type WorkerStatus struct {
	Name   string `json:"name"`
	CPU    *int   `json:"cpu,omitempty"`
	Node   *int   `json:"node,omitempty"` // NUMA node it runs on
	Wait   string `json:"wait"`
	Rounds uint64 `json:"rounds"`
	Idle   uint64 `json:"idle"`

	Away AbsenceStatus `json:"away"`
}

// FlowStatus is one flow: what came, where it went, what was lost and why, who
// copied how much, and how far it is safe on disk.
type FlowStatus struct {
	Name  string    `json:"name"`
	Kind  string    `json:"kind"` // what it connects: network-storage, rdma-storage, network-rdma, storage-rdma, rdma-rdma, or with null for an end to measure the other alone
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

	Rules        []RuleStatus  `json:"rules,omitempty"`         // of the filter, in order
	FilterCounts []CountStatus `json:"filter_counts,omitempty"` // of the user's own program

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

	Interfaces []InterfaceStatus `json:"interfaces,omitempty"` // where there are several

	Packets uint64  `json:"packets"` // received from the rings
	Bytes   uint64  `json:"bytes"`
	PPS     float64 `json:"packets_per_second"` // over the last second
	BPS     float64 `json:"bits_per_second"`

	// Offered = Passed + Packets + Waiting + Dropped + Missing, but for those of
	// Dropped that Packets has already: beyond_count and write_failed.
	Offered uint64            `json:"offered"` // arrived at the interface
	Missing int64             `json:"missing"` // zero at rest; the counters are read one after the other
	Waiting uint64            `json:"waiting"` // in the receive rings now, in frames
	Passed  map[string]uint64 `json:"passed"`  // left to the kernel, by reason
	Dropped map[string]uint64 `json:"dropped"` // lost, by reason

	Written Position          `json:"written"` // prefix without a gap
	Durable Position          `json:"durable"`
	Held    *Held             `json:"held,omitempty"`             // nil: one file, or a stream
	Removed map[string]uint64 `json:"removed_segments,omitempty"` // complete segments that made room, by what asked for it
	Floor   *FloorStatus      `json:"floor,omitempty"`            // nil: nothing is kept free
	Cut     *CutStatus        `json:"cut,omitempty"`              // nil: packets are kept whole
	Index   *IndexStatus      `json:"index,omitempty"`            // nil: segments have none

	CopiedBytes map[string]uint64 `json:"copied_bytes"`        // by us, by reason
	KernelBytes map[string]uint64 `json:"kernel_copied_bytes"` // by the kernel, by device
	DiskBytes   uint64            `json:"disk_bytes"`
	DiskErrors  map[string]uint64 `json:"disk_errors"`     // writes and flushes that failed, by reason
	Stalls      uint64            `json:"stalls"`          // rounds in which the disk was too slow to take more
	Refused     uint64            `json:"refused_wakeups"` // the kernel refused, while the interface was down
	Segments    uint64            `json:"segments"`

	Receives   *ReceivesStatus  `json:"receives,omitempty"` // messages of RDMA clients, which count as packets
	Sends      *SendsStatus     `json:"sends,omitempty"`    // to RDMA peers
	Blocks     *BlocksStatus    `json:"blocks,omitempty"`   // to RDMA clients who ask; requests served count as packets
	Hosts      *HostsStatus     `json:"hosts,omitempty"`    // to NVMe hosts, whose commands count as packets
	Replay     *ReplayStatus    `json:"replay,omitempty"`   // packets of captures that are sent, which count as packets once they are
	Stages     []StageStatus    `json:"stages,omitempty"`
	Log        *LogStatus       `json:"log,omitempty"`
	Level      *LevelStatus     `json:"level,omitempty"`       // nil: blocks are served
	Generated  *GeneratedStatus `json:"generated,omitempty"`   // packets that the flow makes, which count as packets
	Discarded  *DiscardedStatus `json:"discarded,omitempty"`   // nil: the flow goes somewhere
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
