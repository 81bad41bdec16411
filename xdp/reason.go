package xdp

import "fmt"

// Reason is what became of a packet that arrived at an interface.
type Reason uint8

// The reasons. Those that begin with Kernel went on to the kernel, those that
// begin with Lost went nowhere; nor did FilterDropped, as somebody wished.
const (
	// Received packets were given by Recv.
	Received Reason = iota
	// Waiting packets are in an rx ring, for Recv to give.
	Waiting
	// KernelNoMatch packets the filter did not want.
	KernelNoMatch
	// KernelTooLong packets were wanted, but longer than the sockets take.
	KernelTooLong
	// KernelNoSocket packets were wanted, but came to a queue without a port, or
	// while the interface was stopped.
	KernelNoSocket
	// KernelUnclear packets the user's own program returned something for that means nothing.
	KernelUnclear
	// OtherFlow packets another Interface of the device took, dropped, or wanted in vain.
	OtherFlow
	// FilterDropped packets were dropped as a rule, or the user's own program, says.
	FilterDropped
	// LostRingFull packets found the rx ring full: Recv is called too rarely.
	LostRingFull
	// LostNoFrames packets found no frame in the fill ring: Supply is called too
	// rarely, or with too few.
	LostNoFrames
	// LostTooLong packets the caller's own program gave to a socket that does not
	// take packets of several frames.
	LostTooLong
	// LostMissed packets the card had no room for (rx_missed_errors).
	LostMissed
	// LostDamaged packets the card refused as broken (rx_errors).
	LostDamaged
	// LostDriver packets the driver dropped before the program saw them.
	LostDriver

	reasons
)

var reasonNames = [reasons]string{
	Received:       "received",
	Waiting:        "waiting",
	KernelNoMatch:  "kernel_no_match",
	KernelTooLong:  "kernel_too_long",
	KernelNoSocket: "kernel_no_socket",
	KernelUnclear:  "kernel_unclear",
	OtherFlow:      "other_flow",
	FilterDropped:  "filter_dropped",
	LostRingFull:   "lost_ring_full",
	LostNoFrames:   "lost_no_frames",
	LostTooLong:    "lost_too_long",
	LostMissed:     "lost_missed",
	LostDamaged:    "lost_damaged",
	LostDriver:     "lost_driver",
}

// String is the reason's name as metrics have it.
func (r Reason) String() string {
	if r >= reasons {
		return fmt.Sprintf("reason %d", r)
	}
	return reasonNames[r]
}

// IsLost reports whether nobody got the packet.
func (r Reason) IsLost() bool { return r >= LostRingFull }

// Reasons lists every reason.
func Reasons() []Reason {
	out := make([]Reason, reasons)
	for i := range out {
		out[i] = Reason(i)
	}
	return out
}
