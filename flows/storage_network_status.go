package flows

import (
	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/status"
)

// from is what is read, for people.
func (s *storageNetwork) from() string { return s.reel.all[s.reel.which.Load()].name }

func (s *storageNetwork) Announce() []any {
	g := s.egress.net.Granted()
	a := []any{"captures", len(s.reel.all), "pace", s.egress.pace.pace.String(), "zero_copy", g.ZeroCopy, "multi_buffer", g.MultiBuffer}
	if why := g.WhyNotZeroCopy(); why != "" {
		a = append(a, "why_no_zero_copy", why)
	}
	return a
}

// observe reads the counters, those of what was sent first: it was read before.
func (s *storageNetwork) Observe(to *status.Flow) error {
	e, g := &s.egress, s.egress.net.Granted()
	to.To = s.egress.net.Name()
	to.ZeroCopy, to.WhyNot, to.MultiBuffer = g.ZeroCopy, g.WhyNotZeroCopy(), g.MultiBuffer
	to.Packets, to.Bytes, to.Stalls, to.Refused = e.packets.Load(), e.bytes.Load(), e.stalls.Load(), e.refused.Load()
	for why, name := range unsentNames {
		to.Dropped[name] = e.unsent[why].Load()
	}
	to.Dropped["not_sent"] = 0 // known at the end
	to.Offered = e.read.Load()
	to.CopiedBytes["joined"], to.CopiedBytes["unpacked"] = e.copied.Load(), s.unpacked
	disk := s.reel.queue.Stats()
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
	lost, err := s.egress.net.Unsent()
	to.Replay = &status.Replay{
		Pace: s.egress.pace.pace.String(), Captures: len(s.reel.all), Played: s.reel.played.Load(), File: s.from(), Offset: s.reel.place.Load(),
		Late: e.tardy.Load(), Allowed: e.late.Nanoseconds(), Lateness: e.times.Distribution(), Paused: float64(e.paused.Load()) / 1e9, Unsent: lost,
	}
	return err
}

// abandon counts what the device did not take to its end: descriptors, of which short packets have one.
func (s *storageNetwork) CountLost(to *status.Flow) {
	to.Dropped["not_sent"] = uint64(max(0, s.egress.flying.Load()))
}
