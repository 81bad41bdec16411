package peers

import (
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/flows/stream"
)

// checkPaths is Check for a sink with several devices. One of them may be without a link: what counts is whether the
// peers are connected. A device that has failed permanently ends the flow, as the only one would.
func (s *Sink) checkPaths() (waits, ends error) {
	if _, ends = s.device.Check(); ends != nil {
		return nil, ends
	}
	for _, d := range s.further {
		if _, ends = d.Check(); ends != nil {
			return nil, ends
		}
	}
	return s.missing(), nil
}

// pathsOf returns the status of a peer's paths.
func pathsOf(all []stream.PathStats) (out []status.Path) {
	for i := range all {
		p := &all[i]
		out = append(out, status.Path{
			Device: p.Device, Address: p.Address, State: p.State, Error: p.Cause, Connections: p.Connections, Failures: p.Failures,
			Messages: p.Messages, Taken: p.Taken, Left: p.Left,
		})
	}
	return out
}
