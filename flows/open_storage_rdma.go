package flows

import (
	"cmp"
	"context"

	"github.com/unifiedd/unifiedd/flows/blocks"
	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/device"
	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/internal/numa"
	"github.com/unifiedd/unifiedd/nvme"
	"github.com/unifiedd/unifiedd/rdma/connect"
)

// openStorageRDMA opens both ends of a flow. Nobody is served until it has begun.
func openStorageRDMA(o *opening) (*storageRDMA, error) {
	s := &storageRDMA{book: o.book, do: o.worker.Do, secure: o.shared.credentials != nil}
	path := cmp.Or(o.flow.From.Device, o.flow.From.File)
	var err error
	if s.device, err = o.useDevice(o.flow.To.RDMA); err != nil {
		return nil, err
	}
	if s.target, err = nvme.OpenTarget(nvme.TargetConfig{Path: path, ReadOnly: true}); err != nil {
		return nil, err
	}
	o.undo.add(s.target.Close)
	if err := s.openServer(o); err != nil {
		return nil, err
	}
	if s.listener, err = connect.Listen(context.Background(), o.flow.To.Listen, connect.Config{Credentials: o.shared.credentials}); err != nil {
		return nil, err
	}
	o.undo.add(s.listener.Close)
	o.undo.add(s.serving.wait)
	s.ends.from, s.ends.to = numa.OfPath(path), numa.Unknown
	o.complete(&s.common)
	return s, nil
}

func (s *storageRDMA) openServer(o *opening) (err error) {
	to := &o.flow.To
	s.server, err = blocks.Open(blocks.Config{
		Name: "flow " + o.flow.Name, Endpoint: s.device.Endpoint, Worker: o.hands, Target: s.target, Flow: o.flow.Name,
		Clients: to.Clients, Window: to.Window, Transfer: uint32(to.Transfer), Cache: uint64(to.Cache),
		Permit: permitAll(to.Allow), AllowAnyGID: to.AllowAnyGID, Events: o.worker.Config().Wait == config.WaitPoll, Log: o.log,
	})
	if err == nil {
		o.undo.add(s.server.Close)
	}
	return err
}

// permitAll lets in those with one of the names to all blocks; nil: everybody.
func permitAll(names []string) func(connect.Peer, protocol.Hello) (blocks.Range, error) {
	may := device.Permit(names)
	if may == nil {
		return nil
	}
	return func(p connect.Peer, h protocol.Hello) (blocks.Range, error) { return blocks.Range{}, may(p, h) }
}

// serve takes clients until the context ends.
func (s *storageRDMA) serve(ctx context.Context) error { return s.server.Serve(ctx, s.listener, s.do) }
