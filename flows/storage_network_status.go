package flows

import (
	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/latency"
)

// ReplayStatus is what was sent of captures. Packets of theirs that were handed to the device count as packets of the flow.
type ReplayStatus struct {
	Pace     string                `json:"pace"`
	Captures int                   `json:"captures"`           // files
	Played   uint64                `json:"played"`             // that were sent to their ends, each time that they were
	File     string                `json:"file"`               // that is being sent
	Offset   int64                 `json:"offset"`             // in it
	Late     uint64                `json:"late"`               // packets that left later than allowed
	Allowed  int64                 `json:"allowed_ns"`         // that is
	Lateness *latency.Distribution `json:"lateness,omitempty"` // from a packet's time until the device had taken it; nil: none had one
	Paused   float64               `json:"paused_seconds"`     // for which the interface was down, and time stood still
	Unsent   uint64                `json:"unsent"`             // packets that the interface dropped, from whoever they were
}

// from is what is read, for people.
func (s *storageNetwork) from() string { return s.reel.all[s.which.Load()].name }

func (s *storageNetwork) announce() []any {
	g := s.net.Granted()
	a := []any{"captures", len(s.reel.all), "pace", s.pace.Pace.String(), "zero_copy", g.ZeroCopy, "multi_buffer", g.MultiBuffer}
	if why := g.WhyNotZeroCopy(); why != "" {
		a = append(a, "why_no_zero_copy", why)
	}
	return a
}

// observe reads the counters, those of what was sent first: it was read before.
func (s *storageNetwork) observe(to *FlowStatus) error {
	e, g := &s.egress, s.net.Granted()
	to.To = s.net.Name()
	to.ZeroCopy, to.WhyNot, to.MultiBuffer = g.ZeroCopy, g.WhyNotZeroCopy(), g.MultiBuffer
	to.Packets, to.Bytes, to.Stalls, to.Refused = e.packets.Load(), e.bytes.Load(), e.stalls.Load(), e.refused.Load()
	for why, name := range unsentNames {
		to.Dropped[name] = e.unsent[why].Load()
	}
	to.Dropped["not_sent"] = 0 // known at the end
	to.Offered = e.read.Load()
	to.CopiedBytes["joined"], to.CopiedBytes["unpacked"] = e.copied.Load(), s.unpacked
	disk := s.queue.Stats()
	to.KernelBytes["disk"], to.KernelBytes["xdp"] = disk.Copied, 0
	if !g.ZeroCopy {
		to.KernelBytes["xdp"] = to.Bytes
	}
	to.DiskErrors[unix.ErrnoName(unix.EIO)] = 0
	for errno, n := range disk.Errors {
		if errno != unix.ENODATA { // the end of a file
			to.DiskErrors[unix.ErrnoName(errno)] = n
		}
	}
	lost, err := s.net.Unsent()
	to.Replay = &ReplayStatus{
		Pace: s.pace.Pace.String(), Captures: len(s.reel.all), Played: s.played.Load(), File: s.from(), Offset: s.place.Load(),
		Late: e.tardy.Load(), Allowed: e.late.Nanoseconds(), Lateness: e.times.Distribution(), Paused: float64(e.paused.Load()) / 1e9, Unsent: lost,
	}
	return err
}

// abandon counts what the device did not take to its end: descriptors, of which short packets have one.
func (s *storageNetwork) abandon(to *FlowStatus) {
	to.Dropped["not_sent"] = uint64(max(0, s.flying.Load()))
}
