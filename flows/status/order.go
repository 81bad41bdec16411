package status

import (
	"time"

	"github.com/unifiedd/unifiedd/internal/latency"
)

// Orders is the sink of a flow that sends orders to an exchange. The orders that it has refused are in Flow.Dropped.
type Orders struct {
	Connects    string    `json:"connects"`        // address or name of the exchange, and port; empty: a program connects
	Given       string    `json:"given,omitempty"` // program that gives the connection
	Interface   string    `json:"interface"`
	Connected   bool      `json:"connected" metric:"orders_connected"`
	Local       string    `json:"local,omitempty"`                               // address and port of this end
	Remote      string    `json:"remote,omitempty"`                              // address and port of the exchange's end
	Since       time.Time `json:"since,omitzero"`                                // of the connection
	Connections uint64    `json:"connections" metric:"orders_connections_total"` // so far
	Lost        uint64    `json:"lost" metric:"orders_connections_lost_total"`   // of those, connections that ended while the flow ran
	Failed      uint64    `json:"failed" metric:"orders_connects_failed_total"`  // attempts to connect

	Stopped bool   `json:"stopped" metric:"orders_stopped"` // the kill switch is on
	Held    uint64 `json:"held"`                            // orders held since it was turned on last

	Segments uint64            `json:"segments" metric:"orders_segments_total"`             // orders that left in a segment of ours
	Kernel   map[string]uint64 `json:"kernel" metric:"orders_kernel_total,reason"`          // orders that left the kernel's way, by reason
	Waits    map[string]uint64 `json:"waits" metric:"orders_waits_total,reason"`            // rounds in which an order waited, by reason
	Bytes    uint64            `json:"bytes" metric:"orders_bytes_total"`                   // of orders that left
	Broken   uint64            `json:"broken" metric:"orders_broken_segments_total"`        // segments that the interface did not take; the kernel sent those orders again
	Partial  uint64            `json:"partial" metric:"orders_partial_total"`               // orders of which the kernel took a part at first
	Early    uint64            `json:"early" metric:"orders_early_total"`                   // acknowledgements that came before the kernel had the order
	Received uint64            `json:"received_bytes" metric:"orders_received_bytes_total"` // from the exchange

	Retransmitted  uint64  `json:"retransmitted" metric:"orders_retransmitted_total"`         // segments that the kernel has sent again
	Unacknowledged uint64  `json:"unacknowledged_bytes" metric:"orders_unacknowledged_bytes"` // by the exchange, when last read
	RoundTrip      float64 `json:"round_trip_seconds" metric:"orders_round_trip_seconds"`     // the shortest one so far
	NextHop        string  `json:"next_hop,omitempty"`                                        // Ethernet address to which segments of ours go
	MTU            int     `json:"mtu,omitempty"`                                             // longest packet to it in bytes
	NoPath         string  `json:"why_no_path,omitempty"`                                     // why segments of ours do not find their way

	Times *OrderTimes `json:"times,omitempty"`
	Rules *OrderRules `json:"rules,omitempty"` // that make orders of packets or messages
}

// OrderTimes has the times of the orders that have left.
type OrderTimes struct {
	Stamps         string                `json:"stamps"`                  // who says when a segment of ours left: kernel, card, or none
	WhyNoStamps    string                `json:"why_no_stamps,omitempty"` // why it is none
	TickToDecision *latency.Distribution `json:"tick_to_decision,omitempty" metric:"orders_latency_seconds,part:tick_to_decision"`
	DecisionToOut  *latency.Distribution `json:"decision_to_out,omitempty" metric:"orders_latency_seconds,part:decision_to_out"`
	TickToOut      *latency.Distribution `json:"tick_to_out,omitempty" metric:"orders_latency_seconds,part:tick_to_out"`
	NoTick         uint64                `json:"no_tick" metric:"orders_without_time_total,time:tick"`   // orders of which the program did not say what they answer
	NoStamp        uint64                `json:"no_stamp" metric:"orders_without_time_total,time:stamp"` // segments of ours without a stamp, though others have one
	File           *OrderTimesFile       `json:"file,omitempty"`                                         // nil: there is none
}

// OrderTimesFile is the file with the times of each order.
type OrderTimesFile struct {
	Path    string            `json:"path"`
	Orders  uint64            `json:"orders" metric:"orders_times_written_total"`         // in the file, of this run of the flow
	Dropped map[string]uint64 `json:"dropped" metric:"orders_times_dropped_total,reason"` // orders that are not in it, by reason
	Error   string            `json:"error,omitempty"`                                    // why it takes none now
}

// OrdersStopped is which kill switches are on.
type OrdersStopped struct {
	All   bool            `json:"all"`             // of all flows that Flows does not name
	Flows map[string]bool `json:"flows"`           // whether that of a flow is on, if it is not as All says
	File  string          `json:"file"`            // that keeps it; empty: it is not kept
	Error string          `json:"error,omitempty"` // why the file could not be read, or written
}

// OrderStop is the answer to a command that stops or resumes the orders of a flow.
type OrderStop struct {
	Flow    string `json:"flow"`
	Stopped bool   `json:"stopped"`
	Held    uint64 `json:"held"`   // orders held since the switch was turned on
	Unsent  uint64 `json:"unsent"` // orders that the kernel or the interface has taken and not sent, and that still leave
}

// OrderRules is what rules have made of packets, or of the messages of a feed.
type OrderRules struct {
	Matched   uint64      `json:"matched" metric:"order_rules_messages_total,outcome:matched"`     // messages that a rule made an order of
	Unmatched uint64      `json:"unmatched" metric:"order_rules_messages_total,outcome:unmatched"` // messages that are for no rule
	Short     uint64      `json:"short" metric:"order_rules_messages_total,outcome:short"`         // messages that end before bytes that a rule needs
	NoUDP     uint64      `json:"no_udp" metric:"order_rules_messages_total,outcome:no_udp"`       // packets without a whole UDP datagram
	Rules     []OrderRule `json:"rules" label:"rule=Name"`

	LoggedIn   bool              `json:"logged_in" metric:"order_rules_logged_in"`                          // orders may leave on the connection
	Heartbeats uint64            `json:"heartbeats" metric:"order_rules_heartbeats_total"`                  // that have left
	Refused    map[string]uint64 `json:"session_refused" metric:"order_rules_session_refused_total,reason"` // heartbeats and logins that have not left, by reason
}

// OrderRule is one of these rules.
type OrderRule struct {
	Name    string `json:"name"`
	Matched uint64 `json:"matched" metric:"order_rules_matched_total"` // messages
	Left    uint64 `json:"left" metric:"order_rules_left_total"`       // orders that have left
}
