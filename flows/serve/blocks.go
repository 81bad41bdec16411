package serve

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/blocks"
	"github.com/unifiedd/unifiedd/flows/device"
	"github.com/unifiedd/unifiedd/flows/pipeline"
	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/flows/stream"
	"github.com/unifiedd/unifiedd/flows/worker"
	"github.com/unifiedd/unifiedd/internal/numa"
	"github.com/unifiedd/unifiedd/nvme"
	"github.com/unifiedd/unifiedd/rdma/connect"
	"github.com/unifiedd/unifiedd/umem"
)

// clientsWait is the effect on clients while the disk does not answer.
const clientsWait = "clients wait"

// Blocks serves the blocks of a file or device to RDMA clients:
//
//	request → NVMe read, or the cache → RDMA WRITE with immediate into the client's memory
var _ pipeline.Flow = (*Blocks)(nil)

type Blocks struct {
	pipeline.Server
	err      *pipeline.FirstError
	log      *slog.Logger
	device   *device.RDMA
	target   *nvme.Target
	server   *blocks.Server
	listener *connect.Listener
	secure   bool // connections are TLS
	keeps    bool // what is cached, over restarts
	do       stream.Doer
	serving  pipeline.Service
	health   pipeline.Health // of the disk
	book     *umem.Book
}

// Poll is one round.
func (s *Blocks) Poll(now time.Time) (more bool) {
	if s.err.Get() == nil {
		var err error
		more, err = s.server.Poll(now)
		s.err.Note(err)
	}
	s.book.Publish()
	return more
}

func (s *Blocks) FDs(dst []unix.PollFd) []unix.PollFd { return s.server.FDs(dst) }

func (s *Blocks) Deadline(now time.Time) time.Time { return now.Add(worker.MaxWait) }

// Begin starts to accept clients.
func (s *Blocks) Begin() error {
	s.serving.Start(s.serve)
	return nil
}

// Traffic returns the requests served, and their bytes.
func (s *Blocks) Traffic() (packets, bytes uint64) {
	return s.server.Traffic()
}

func (s *Blocks) Check(now time.Time) (waits, ends error) {
	if err := s.serving.Err(); err != nil {
		return nil, err
	}
	if waits, ends = s.device.Check(); waits != nil || ends != nil {
		return waits, ends
	}
	return s.health.Check(now, s.target.Path(), clientsWait, s.server.Stats().Disk), nil
}

// StopReceiving ends all connections. The server does not answer requests in progress.
func (s *Blocks) StopReceiving() error { return s.serving.Wait() }

func (s *Blocks) Pending() int { return int(s.server.Stats().Disk.InFlight) }

func (s *Blocks) CloseQueue() error { return s.server.CloseWithin(time.Millisecond) }

// OpenBlocks opens a block server. It accepts clients after Begin.
func OpenBlocks(e *pipeline.Env) (*pipeline.Run, error) {
	s := &Blocks{err: e.Err, log: e.Log, book: e.Book, do: e.Do, secure: e.Shared.Credentials != nil, keeps: e.Flow.To.CacheIndex != ""}
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
	c := connect.Config{Credentials: e.Shared.Credentials, Failed: device.LogFailures(e.Log)}
	if s.listener, err = connect.Listen(context.Background(), e.Flow.To.Listen, c); err != nil {
		return nil, err
	}
	e.Undo.Add(s.listener.Close)
	e.Undo.Add(s.serving.Wait)
	return pipeline.NewRun(e, s, numa.OfPath(path), numa.Unknown), nil
}

func (s *Blocks) openServer(e *pipeline.Env) (err error) {
	to := &e.Flow.To
	s.server, err = blocks.Open(blocks.Config{
		Name: "flow " + e.Flow.Name, Endpoint: s.device.In(to.Class), Worker: e.Holder, Target: s.target, Flow: e.Flow.Name,
		Clients: to.Clients, Window: to.Window, Transfer: uint32(to.Transfer), Cache: uint64(to.Cache), Index: to.CacheIndex,
		Permit: permitAll(to.Allow), AllowAnyGID: to.AllowAnyGID, Events: e.Events, Log: e.Log,
	})
	if err == nil {
		e.Undo.Add(s.server.Close)
	}
	return err
}

// permitAll returns a function that permits all blocks to peers whose certificate has one of the
// names. Without names it returns nil, which admits all peers.
func permitAll(names []string) func(connect.Peer, protocol.Hello) (blocks.Range, error) {
	may := device.Permit(names)
	if may == nil {
		return nil
	}
	return func(p connect.Peer, h protocol.Hello) (blocks.Range, error) { return blocks.Range{}, may(p, h) }
}

// serve accepts clients until the context ends.
func (s *Blocks) serve(ctx context.Context) error { return s.server.Serve(ctx, s.listener, s.do) }

func (s *Blocks) Announce() []any {
	a := []any{"device", s.device.Name, "listens", s.listener.Addr().String(), "bytes", s.target.Size()}
	if !s.secure {
		a = append(a, "plain", device.PlaintextWarning(s.listener.Addr()))
	}
	return a
}

func (s *Blocks) Observe(to *status.Flow) error {
	st := s.server.Stats()
	to.Packets, to.Bytes, to.Latency = st.Served, st.Bytes, st.Latency
	b := &status.Blocks{
		Device: s.device.Name, Listen: s.listener.Addr().String(), TLS: s.secure, Size: s.target.Size(),
		Requests: st.Requests, Served: st.Served, Bytes: st.Bytes, Retried: st.Retried, Waited: st.Waited, Abandoned: st.Abandoned, Ended: st.Ended,
		Refused: status.RefusedBy(st.Refused), TurnedAway: status.RefusedBy(st.TurnedAway), Handshakes: device.Handshakes(s.listener), Frames: cacheStatus(st.Frames), Extents: cacheStatus(st.Extents),
	}
	if s.keeps {
		b.Kept, b.Discarded = st.Kept, map[string]uint64{}
		for _, why := range blocks.Discards {
			b.Discarded[string(why)] = st.Discarded[why]
		}
	}
	for _, c := range st.Clients {
		b.Clients = append(b.Clients, status.Reader{Name: c.Name, Address: c.Address, Since: c.Since, Requests: c.Requests, Served: c.Served, Bytes: c.Bytes, Refused: status.RefusedBy(c.Refused)})
	}
	to.Blocks = b
	to.KernelBytes["disk"] = st.Disk.Copied
	to.DiskErrors[unix.ErrnoName(unix.EIO)] = 0
	for errno, n := range st.Disk.Errors {
		to.DiskErrors[unix.ErrnoName(errno)] = n
	}
	return nil
}

func cacheStatus(c blocks.Cache) status.Cache {
	return status.Cache{Buffers: c.Buffers, Hits: c.Hits, Misses: c.Misses, Evictions: c.Evictions, Reads: c.Reads, BytesRead: c.BytesRead, Failed: c.Failed}
}
