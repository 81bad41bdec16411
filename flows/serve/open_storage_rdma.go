package serve

import (
	"cmp"
	"context"

	"github.com/unifiedd/unifiedd/flows/blocks"
	"github.com/unifiedd/unifiedd/flows/device"
	"github.com/unifiedd/unifiedd/flows/pipeline"
	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/internal/numa"
	"github.com/unifiedd/unifiedd/nvme"
	"github.com/unifiedd/unifiedd/rdma/connect"
)

// openStorageRDMA opens both ends of a flow. Nobody is served until it has begun.
func OpenBlocks(e *pipeline.Env) (*pipeline.Run, error) {
	s := &Blocks{err: e.Err, log: e.Log, book: e.Book, do: e.Do, secure: e.Shared.Credentials != nil}
	path := cmp.Or(e.Flow.From.Device, e.Flow.From.File)
	var err error
	if s.device, err = e.UseDevice(e.Flow.To.RDMA); err != nil {
		return nil, err
	}
	if s.target, err = nvme.OpenTarget(nvme.TargetConfig{Path: path, ReadOnly: true}); err != nil {
		return nil, err
	}
	e.Undo.Add(s.target.Close)
	if err := s.openServer(e); err != nil {
		return nil, err
	}
	if s.listener, err = connect.Listen(context.Background(), e.Flow.To.Listen, connect.Config{Credentials: e.Shared.Credentials}); err != nil {
		return nil, err
	}
	e.Undo.Add(s.listener.Close)
	e.Undo.Add(s.serving.Wait)
	return pipeline.NewRun(e, s, numa.OfPath(path), numa.Unknown), nil
}

func (s *Blocks) openServer(e *pipeline.Env) (err error) {
	to := &e.Flow.To
	s.server, err = blocks.Open(blocks.Config{
		Name: "flow " + e.Flow.Name, Endpoint: s.device.Endpoint, Worker: e.Holder, Target: s.target, Flow: e.Flow.Name,
		Clients: to.Clients, Window: to.Window, Transfer: uint32(to.Transfer), Cache: uint64(to.Cache),
		Permit: permitAll(to.Allow), AllowAnyGID: to.AllowAnyGID, Events: e.Events, Log: e.Log,
	})
	if err == nil {
		e.Undo.Add(s.server.Close)
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
func (s *Blocks) serve(ctx context.Context) error { return s.server.Serve(ctx, s.listener, s.do) }
