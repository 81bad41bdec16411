package serve

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/attach"
	"github.com/unifiedd/unifiedd/flows/channel"
	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/device"
	"github.com/unifiedd/unifiedd/flows/pipeline"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/flows/stream"
	"github.com/unifiedd/unifiedd/flows/worker"
	"github.com/unifiedd/unifiedd/internal/numa"
	"github.com/unifiedd/unifiedd/rdma/connect"
	"github.com/unifiedd/unifiedd/umem"
)

var _ pipeline.Flow = (*ChannelOut)(nil)

// ChannelOut passes the messages of a channel on to peers, which have the same channel.
type ChannelOut struct {
	pipeline.Server
	err     *pipeline.FirstError
	device  *device.RDMA
	further []*device.RDMA // of further paths
	outlet  *attach.Outlet
	name    string // of the channel
	senders []*channel.Sender
	peers   []config.Peer
	do      func(func() error) error
	dials   pipeline.Service
	book    *umem.Book
	events  bool
}

// PeersOf returns the peers of a flow from a channel as readers of that channel.
func PeersOf(f *config.Flow) (all []attach.ReaderConfig) {
	for _, p := range f.To.Peers {
		all = append(all, attach.ReaderConfig{Program: p.Name, Remote: true, Blocks: p.Policy == config.PolicyWait, Strict: p.Policy == config.PolicyDisconnect})
	}
	return all
}

// OpenChannelOut opens the flow. It connects to its peers after Begin.
func OpenChannelOut(e *pipeline.Env) (*pipeline.Run, error) {
	if e.Shared.Attach == nil {
		return nil, errors.New("no program can attach: add attach.programs")
	}
	s := &ChannelOut{err: e.Err, book: e.Book, do: e.Do, name: e.Flow.From.Channel, peers: e.Flow.To.Peers, events: e.Events}
	var err error
	if s.device, err = e.UseDevice(e.Flow.To.RDMA); err != nil {
		return nil, err
	}
	if s.outlet, err = e.Shared.Attach.Outlet(s.name, PeersOf(&e.Flow)); err != nil {
		return nil, err
	}
	e.Undo.Add(s.outlet.Close)
	first := preferredPaths(&e.Flow.To)
	for i, r := range s.outlet.Readers() {
		one, err := s.openSender(e, &s.peers[i], first[i], r)
		if err != nil {
			return nil, err
		}
		e.Undo.Add(one.Close)
		s.senders = append(s.senders, one)
	}
	e.Undo.Add(s.dials.Wait)
	return pipeline.NewRun(e, s, numa.Unknown, numa.Unknown), nil
}

// openSender opens the sender to a peer. first is the number of the path that it prefers.
func (s *ChannelOut) openSender(e *pipeline.Env, p *config.Peer, first int, r *attach.RemoteReader) (*channel.Sender, error) {
	places, err := e.PlacesOf(p)
	if err != nil {
		return nil, err
	}
	var place stream.Place
	if len(places) > 0 {
		place = places[0]
	}
	paths, further, err := device.PathsTo(p, e.Flow.To.ClassOf(p), e.UseDevice)
	if err != nil {
		return nil, err
	}
	s.further = append(s.further, further...)
	paths = append([]stream.Path{{Device: s.device.Name, Endpoint: s.device.In(e.Flow.To.ClassOf(p)), Address: p.Address}}, paths...)
	paths = append(paths[first:len(paths):len(paths)], paths[:first]...)
	return channel.OpenSender(channel.SenderConfig{
		Name: e.Name() + ", peer " + r.Name(), Outlet: s.outlet, Reader: r, Endpoint: paths[0].Endpoint, Worker: e.Holder, Device: paths[0].Device, Paths: paths[1:],
		Address: paths[0].Address, Place: place, Flow: p.Flow, Connect: connect.Config{Credentials: e.Shared.Credentials}, Events: e.Events, Log: e.Log,
	})
}

// Poll is one round.
func (s *ChannelOut) Poll(now time.Time) (more bool) {
	if s.err.Get() == nil {
		for _, one := range s.senders {
			again, err := one.Poll(now)
			s.err.Note(err)
			more = more || again
		}
	}
	s.book.Publish()
	return more
}

func (s *ChannelOut) FDs(dst []unix.PollFd) []unix.PollFd {
	for _, one := range s.senders {
		dst = one.FDs(dst)
	}
	return dst
}

func (s *ChannelOut) Deadline(now time.Time) time.Time {
	for _, one := range s.senders {
		if one.Ready() {
			return now
		}
	}
	return now.Add(worker.MaxWait)
}

// Begin implements pipeline.Flow. It connects to the peers, and again when they are lost.
func (s *ChannelOut) Begin() error {
	s.dials.Start(func(ctx context.Context) error {
		ended := make(chan error, len(s.senders))
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		for _, one := range s.senders {
			go func() {
				ended <- one.Run(ctx, s.do)
				cancel() // one ends because all must
			}()
		}
		var errs []error
		for range s.senders {
			errs = append(errs, <-ended)
		}
		return errors.Join(errs...)
	})
	return nil
}

// Traffic returns the messages sent to all peers, and their bytes.
func (s *ChannelOut) Traffic() (packets, bytes uint64) {
	for _, one := range s.senders {
		n, length := one.Traffic()
		packets, bytes = packets+n, bytes+length
	}
	return packets, bytes
}

// Check implements pipeline.Flow. It returns an error for a missing peer as one to wait for.
func (s *ChannelOut) Check(time.Time) (waits, ends error) {
	if err := s.dials.Err(); err != nil {
		return nil, err
	}
	waits, ends = s.device.Check()
	for _, d := range s.further {
		if ends == nil {
			_, ends = d.Check()
		}
	}
	if ends != nil || waits != nil && len(s.further) == 0 { // with several paths what counts is whether the peers are connected
		return waits, ends
	}
	for i, one := range s.senders {
		if st := one.Stats(); st.State != channel.StateConnected && s.outlet.Begun() {
			return errors.New("peer " + s.peers[i].Name + " (" + st.Address + ") is not connected: " + st.Cause), nil
		}
	}
	return nil, nil
}

// StopReceiving ends all connections. Peers have what was posted.
func (s *ChannelOut) StopReceiving() error { return s.dials.Wait() }

func (s *ChannelOut) Announce() []any {
	return []any{"channel", s.name, "device", s.device.Name, "peers", len(s.peers)}
}

func (s *ChannelOut) Observe(to *status.Flow) error {
	to.Packets, to.Bytes = s.Traffic()
	out := &status.Sends{Device: s.device.Name}
	for i, one := range s.senders {
		st := one.Stats()
		p := status.Peer{
			Name: s.peers[i].Name, Address: st.Address, State: st.State, Error: st.Cause, Certificate: st.Peer, Acknowledged: min(st.Sent, st.Acknowledged),
			Dropped: map[string]uint64{"passed": st.Passed, "invalid": st.Invalid, "gap": st.Gap},
			Method:  "write", Bytes: st.Bytes, Connections: st.Connections, Failures: st.Failures, Named: s.peers[i].Peer, Followed: st.Followed, Paths: device.PathStatus(one.PathStats()),
		}
		if len(p.Paths) > 0 {
			p.PathMode = string(s.peers[i].PathMode)
		}
		p.InFlight = st.Sent - p.Acknowledged
		p.Offered = st.Sent + st.Passed + st.Invalid + st.Gap
		out.Peers = append(out.Peers, p)
		to.Stalls += st.Waits
	}
	to.Sends = out
	return nil
}
