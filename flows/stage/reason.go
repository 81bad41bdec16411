package stage

import "sync/atomic"

// Reason is why a step did not change a packet, or a sum did not add a message.
type Reason uint8

// The reasons. A step may leave a packet for several of them, each about other fields.
const (
	Changed       Reason = iota // the step changed the packet
	Truncated                   // the packet is cut off within its headers
	Malformed                   // its headers contradict themselves
	Untagged                    // there is no VLAN tag
	NotIP                       // it is neither IPv4 nor IPv6
	OtherVersion                // it is of the other version of IP
	Routed                      // its final destination is in a routing header or option, and covered by its checksum
	Authenticated               // an authentication header protects it
	LaterFragment               // it is a fragment without the transport header
	NoPorts                     // it is neither TCP nor UDP
	NotUDP                      // it is not UDP
	ShortPayload                // its payload ends before the place of the number
	OtherFrame                  // the place of the number is not in the packet's first frame
	OtherLength                 // the messages are of different lengths
	BrokenElement               // the last element is cut off

	reasons
)

var names = [reasons]string{
	"changed", "truncated", "malformed", "untagged", "not_ip", "other_version", "routed", "authenticated",
	"later_fragment", "no_ports", "not_udp", "short_payload", "other_frame", "other_length", "broken_element",
}

// String is the reason as a metric's label has it.
func (r Reason) String() string {
	if r < reasons {
		return names[r]
	}
	return "unknown"
}

// counters count by reason. One thread counts, and any may read.
type counters [reasons]atomic.Uint64

func (c *counters) count(r Reason) { c[r].Store(c[r].Load() + 1) }

// stats returns the counters with names; it leaves out reasons with a count of 0.
func (c *counters) stats(kind string) StepStats {
	s := StepStats{Kind: kind, Changed: c[Changed].Load(), Left: map[string]uint64{}}
	for r := Changed + 1; r < reasons; r++ {
		if n := c[r].Load(); n > 0 {
			s.Left[r.String()] = n
		}
	}
	return s
}

// StepStats counts what a step or a sum has done so far.
type StepStats struct {
	Kind    string            // set, sequence, timestamp or sum
	Changed uint64            // packets that the step changed, or messages that the sum added
	Left    map[string]uint64 // by reason; one packet may count for several, and for Changed
}
