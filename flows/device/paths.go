package device

import (
	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/flows/stream"
)

// PathsTo opens the devices of a peer's further paths by use, and returns both, in order. class is that of the peer's packets.
func PathsTo(p *config.Peer, class config.Class, use func(name string) (*RDMA, error)) (paths []stream.Path, devices []*RDMA, err error) {
	for _, one := range p.Paths {
		d, err := use(one.RDMA)
		if err != nil {
			return nil, nil, err
		}
		devices = append(devices, d)
		paths = append(paths, stream.Path{Device: d.Name, Endpoint: d.In(class), Address: one.Address, Others: one.Others})
	}
	return paths, devices, nil
}

// PathStatus returns the status of a peer's paths.
func PathStatus(all []stream.PathStats) (out []status.Path) {
	for i := range all {
		p := &all[i]
		out = append(out, status.Path{
			Device: p.Device, Address: p.Address, State: p.State, Error: p.Cause, Connections: p.Connections, Failures: p.Failures,
			Messages: p.Messages, Probes: p.Probes, Taken: p.Taken, Left: p.Left,
		})
	}
	return out
}
