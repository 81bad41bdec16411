package status

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// onPurpose are reasons for which packets are not received on purpose.
var onPurpose = []string{"filter_dropped", "beyond_count", "duplicate", "not_matched", "other_link_type"}

// OnPurpose reports whether packets of a reason in Flow.Dropped are not lost: they are not received on purpose.
func OnPurpose(reason string) bool { return slices.Contains(onPurpose, reason) }

// Lost returns how many packets or messages of each reason the flow has lost. Those that it did not receive on purpose, and
// reasons without any, are not among them.
func (f *Flow) Lost() map[string]uint64 {
	lost := maps.Clone(f.Dropped)
	maps.DeleteFunc(lost, func(reason string, n uint64) bool { return n == 0 || OnPurpose(reason) })
	return lost
}

// LostInAll returns how many packets or messages the flow has lost for all reasons, for itself and for its peers.
func (f *Flow) LostInAll() (n uint64) {
	for _, lost := range f.Lost() {
		n += lost
	}
	if f.Sends != nil {
		for i := range f.Sends.Peers {
			for _, lost := range f.Sends.Peers[i].Dropped {
				n += lost
			}
		}
	}
	return n
}

// Reason says why packets or messages are lost, and what to do about it.
type Reason struct{ Cause, Remedy string }

// String returns both in one line.
func (r Reason) String() string { return r.Cause + ": " + r.Remedy }

// Remedies of several reasons.
const (
	seeReasons = "docs/reference/reasons.md has each reason"
	seeLog     = "the daemon's log has the cause"
)

// Reasons are the reasons of lost packets and messages of which more is known than the word says. docs/reference/reasons.md
// has the same texts.
var Reasons = map[string]Reason{
	"lost_ring_full":   {"the worker came too late to the ring", "use a larger from.ring, a shorter sleep, or a CPU for the worker alone"},
	"lost_no_frames":   {"the rings had no empty frame, as the flow waited for its disk, peers or program", "use a faster disk or peer, or a larger region"},
	"lost_too_long":    {"packets of several frames reached a socket that accepts one frame only", "use larger frames"},
	"lost_missed":      {"the card had no free descriptor", "use larger rings of the card (ethtool -G), or fewer packets"},
	"lost_damaged":     {"the card refused them as broken", "see the cable, and the other end"},
	"lost_driver":      {"the driver dropped them", "ethtool -S says why"},
	"mirror_full":      {"the veth pair of mirror had no room, or the copy was longer than the MTU at the flow's start", "use a larger from.ring, or a CPU for the worker alone"},
	"mirror_failed":    {"the kernel had no memory for the copy, or 1000 copies waited", "give the host more free memory"},
	"buffer_full":      {"the packet socket's ring had no free block", "use a larger from.buffer or a faster disk"},
	"not_received":     {"they waited in a ring when the flow failed", seeLog},
	"missing":          {"the log does not have them any more, or not whole", "unifiedd log verify says where"},
	"not_generated":    {"the flow's end did not take generated packets in time", "see its disk, peers or program, or lower the rate"},
	"write_failed":     {"they could not be written or sent", seeLog},
	"refused":          {"a relay sent them with a session of another client", "the relay sends them again"},
	"not_acknowledged": {"the relay ended before enough peers had them", "the clients still have them"},
	"no_program":       {"no program had the flow open", "start the program that receives them"},
	"slow_program":     {"the attached program did not take enough", "make it faster, or raise to.queue"},
	"too_long":         {"they are longer than a frame", "use larger frames"},
}

// Why says why the flow lost packets or messages for a reason, and what to do about it.
func (f *Flow) Why(reason string) Reason {
	if reason == "lost_no_frames" && f.Stalls == 0 && (f.Level == nil || f.Level.Pauses == 0) {
		reason = "lost_ring_full" // the flow never waited for its sink: there were frames
	}
	r, ok := Reasons[reason]
	switch {
	case !ok:
		return Reason{reason, seeReasons}
	case f.Ring > 0:
		r.Remedy = strings.Replace(r.Remedy, "larger from.ring", fmt.Sprintf("larger from.ring than %d", f.Ring), 1)
	}
	return r
}
