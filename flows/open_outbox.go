package flows

import (
	"context"
	"errors"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/device"
	"github.com/unifiedd/unifiedd/flows/fanout"
	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/flows/stream"
	"github.com/unifiedd/unifiedd/rdma/connect"
)

// openOutbox makes a sender for each peer, of messages of so many bytes in so many frames
// at most, of which queue are under way to a peer at once. Nobody is connected yet.
func (b *outbox) openOutbox(o *opening, longest uint32, frames, queue int) (err error) {
	to := &o.flow.To
	if b.target, err = o.useDevice(to.RDMA); err != nil {
		return err
	}
	c := fanout.Config{Name: "flow " + o.flow.Name, Worker: o.hands, Choose: fanout.Choose(to.Choose), Acknowledge: fanout.Acknowledge(to.Acknowledge), Frames: frames}
	for _, p := range to.Peers {
		s, err := b.openSender(o, p, longest, frames, queue)
		if err != nil {
			return errors.Join(err, closeSenders(c.Peers))
		}
		c.Peers = append(c.Peers, fanout.Peer{Sender: s, Policy: fanout.Policy(p.Policy)})
		b.names = append(b.names, p.Name)
	}
	if b.fan, err = fanout.Open(c); err != nil {
		return err
	}
	o.undo.add(b.fan.Close)
	o.undo.add(b.dials.wait)
	b.do = o.worker.Do
	return nil
}

func (b *outbox) openSender(o *opening, p config.Peer, longest uint32, frames, queue int) (*stream.Sender, error) {
	durability, err := protocol.ParseDurability(string(o.flow.To.Durability))
	if err != nil {
		return nil, err
	}
	return stream.OpenSender(stream.SenderConfig{
		Name: "flow " + o.flow.Name + ", peer " + p.Name, Endpoint: b.target.Endpoint, Worker: o.hands, Address: p.Address, Flow: p.Flow,
		Connect: connect.Config{Credentials: o.shared.credentials}, Durability: durability, Participant: uint32(o.flow.To.Participant), Depth: queue, Method: stream.Method(o.flow.To.Method), Message: protocol.HeaderLen + longest, Frames: frames,
		Events: o.worker.Config().Wait == config.WaitPoll, Log: o.log, Times: &b.times,
	})
}

func closeSenders(all []fanout.Peer) error {
	var errs []error
	for _, p := range all {
		errs = append(errs, p.Sender.Close())
	}
	return errors.Join(errs...)
}

// runPeers keeps the peers connected until the context ends.
func (b *outbox) runPeers(ctx context.Context) error { return b.fan.Run(ctx, b.do) }

// useDevice has an RDMA device open until the flow is closed.
func (o *opening) useDevice(name string) (*device.RDMA, error) {
	d, err := o.devices.Open(name)
	if err == nil {
		o.undo.add(func() error { return o.devices.Release(d) })
	}
	return d, err
}
