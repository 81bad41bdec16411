package channel

import (
	"errors"
	"sync/atomic"

	"github.com/unifiedd/unifiedd/flows/stream"
	"github.com/unifiedd/unifiedd/internal/counter"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/ep"
)

// port is one of the devices at which a receiver takes its peer. The peer uses one of them at a time: they share the ring.
type port struct {
	endpoint *stream.Endpoint
	domain   rdma.ProtectionDomain // of its own, so that no other peer of the device can use its rkey
	control  rdma.MemoryRegion     // of the frame for acknowledgements
	done     ep.Completions
	handle   func(*rdma.WorkCompletion)

	messages    counter.Counter // sequences that came over it
	connections atomic.Uint64
	broken      atomic.Uint64
}

// open makes what the connections over the device need. address is that of the frame for acknowledgements.
func (p *port) open(r *Receiver, address uint64) (err error) {
	e := p.endpoint
	if p.domain, err = e.Device.NewProtectionDomain(); err != nil {
		return err
	}
	if p.control, err = p.domain.RegisterPart(e.Region, address, uint64(e.Region.FrameSize()), rdma.LocalWrite); err != nil {
		return err
	}
	p.done.Queue, err = e.Device.NewCompletionQueue(rdma.CompletionQueueConfig{Depth: 2*maxSignals + 2, Events: r.config.Events})
	return err
}

// close gives everything back. After an error it may be called again.
func (p *port) close() error {
	if err := p.done.Close(); err != nil {
		return err
	}
	if p.control != nil {
		if err := p.control.Close(); err != nil {
			return err
		}
		p.control = nil
	}
	if p.domain != nil {
		if err := p.domain.Close(); err != nil {
			return err
		}
		p.domain = nil
	}
	return nil
}

func (r *Receiver) closePorts() error {
	var errs []error
	for _, p := range r.ports {
		errs = append(errs, p.close())
	}
	return errors.Join(errs...)
}

// PortStats describes what came over one of the devices.
type PortStats struct {
	Connections, Broken uint64
	Messages            uint64 // sequences
}

// StatsAt describes what came over one of the devices: 0 is the first one. Any goroutine may call it.
func (r *Receiver) StatsAt(device int) PortStats {
	p := r.ports[device]
	return PortStats{Connections: p.connections.Load(), Broken: p.broken.Load(), Messages: p.messages.Load()}
}
