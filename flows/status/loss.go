package status

import (
	"cmp"
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

// remedies say what to do about packets or messages that are lost for a reason. docs/reference/reasons.md has the same texts.
var remedies = map[string]string{
	"lost_ring_full":   "the worker polled the ring too late: use a larger `from.ring`, a shorter sleep, or a CPU for the worker alone",
	"lost_no_frames":   "if `unifiedd_stalls_total` or `unifiedd_flow_pauses_total` grow, the disk or peer is too slow: use a faster one, or a larger region. Otherwise as `lost_ring_full`",
	"lost_too_long":    "a packet of several frames reached a socket that accepts one frame only",
	"lost_missed":      "the card had no free descriptor (its own counter): use larger rings of the card, or fewer packets",
	"lost_damaged":     "the card refused it as broken",
	"mirror_full":      "the veth pair of `mirror` had no room, or the copy was longer than the MTU when the flow started",
	"mirror_failed":    "the kernel had no memory for the copy, or 1000 copies waited",
	"buffer_full":      "the packet socket's ring had no free block: use a larger `from.buffer` or a faster disk. Status says when it happened last",
	"lost_driver":      "the driver dropped it before the program saw it",
	"not_received":     "the packet waited in a ring when its flow failed",
	"missing":          "from a log to a state: records that the log does not have any more, or not whole (`unifiedd log verify` says where)",
	"not_generated":    "16384 generated packets already waited, or the flow ended before this one was due",
	"write_failed":     "it was received and could not be written or offered to peers; the log has the cause",
	"not_acknowledged": "the relay ended before enough peers had acknowledged the message. Its client still has it",
	"no_program":       "no program had the flow open, or it did not take enough",
	"slow_program":     "no program had the flow open, or it did not take enough",
}

// Remedy says why packets or messages are lost for a reason, and what to do about it; empty: nothing more is known. stalled
// says that the flow's end was slower than its source.
func Remedy(reason string, stalled bool) string {
	switch {
	case reason == "lost_no_frames" && stalled:
		return "the rings had no empty frame, since the flow's end is slower than its source: use a faster disk or a larger region"
	case reason == "lost_no_frames":
		return "the worker came too late to refill the rings: use a larger from.ring, a shorter sleep, or a CPU for the worker alone"
	}
	return strings.ReplaceAll(remedies[reason], "`", "")
}

// Stalled reports whether the flow's end has been slower than its source.
func (f *Flow) Stalled() bool { return f.Stalls > 0 || f.Level != nil && f.Level.Pauses > 0 }

// Problem is something wrong with a flow, and what to do.
type Problem struct {
	Severity Severity
	What     string
	Remedy   string // empty: What says it
	Past     bool   // What counts since the flow began, and may be over
}

// Severity says how bad a problem is.
type Severity int

// The severities, by which problems are sorted.
const (
	Critical Severity = iota // the flow does not run
	Warning                  // it runs, and something is lost or missing
)

// Problems returns what is wrong with a flow, the worst first. The losses are those since the flow began.
func (f *Flow) Problems() (all []Problem) {
	add := func(s Severity, remedy, what string, args ...any) {
		all = append(all, Problem{Severity: s, What: fmt.Sprintf(what, args...), Remedy: remedy})
	}
	past := func(remedy, what string, args ...any) {
		add(Warning, remedy, what, args...)
		all[len(all)-1].Past = true
	}
	switch f.State {
	case Failed:
		remedy := "unifiedd start " + f.Name
		if !f.NextStart.IsZero() {
			remedy = "it is started again when that is possible"
		}
		add(Critical, remedy, "failed: %s", f.Error)
	case Waiting:
		add(Critical, "", "waits: %s", f.Error)
	}
	lost := f.Lost()
	for _, reason := range slices.SortedFunc(maps.Keys(lost), func(a, b string) int { return cmp.Compare(lost[b], lost[a]) }) {
		past(Remedy(reason, f.Stalled()), "lost %d: %s", lost[reason], reason)
	}
	if f.Sends != nil {
		for i := range f.Sends.Peers {
			f.Sends.Peers[i].problems(add, past)
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(f.DiskErrors)) {
		if n := f.DiskErrors[reason]; n > 0 {
			past("see the log", "%d writes or flushes failed: %s", n, reason)
		}
	}
	for _, j := range f.Joined {
		if j.Error != "" {
			add(Warning, "", "not a member of %s: %s", j.Group, j.Error)
		}
	}
	if len(f.Left) > 0 && len(f.Steered) == 0 {
		add(Warning, "bind all queues, or steer the packets to those of the flow (from.steer)", "queues %v are not bound: their packets stay with the kernel", f.Left)
	}
	if f.NotSteered != "" {
		add(Warning, "", "packets are not steered: %s", f.NotSteered)
	}
	slices.SortStableFunc(all, func(a, b Problem) int { return cmp.Compare(a.Severity, b.Severity) })
	return all
}

// problems adds what is wrong with a peer.
func (p *Peer) problems(add func(s Severity, remedy, what string, args ...any), past func(remedy, what string, args ...any)) {
	name := cmp.Or(p.Name, p.Address)
	if p.Error != "" && p.State != "connected" && p.State != "standby" {
		add(Warning, "", "peer %s is %s: %s", name, p.State, p.Error)
	}
	for _, reason := range slices.Sorted(maps.Keys(p.Dropped)) {
		if n := p.Dropped[reason]; n > 0 {
			past("", "lost %d to peer %s: %s", n, name, reason)
		}
	}
}
