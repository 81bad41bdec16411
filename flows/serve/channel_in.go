package serve

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/attach"
	"github.com/unifiedd/unifiedd/flows/channel"
	"github.com/unifiedd/unifiedd/flows/device"
	"github.com/unifiedd/unifiedd/flows/pipeline"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/flows/stream"
	"github.com/unifiedd/unifiedd/flows/worker"
	"github.com/unifiedd/unifiedd/internal/numa"
	"github.com/unifiedd/unifiedd/rdma/connect"
	"github.com/unifiedd/unifiedd/umem"
)

var _ pipeline.Flow = (*ChannelIn)(nil)

// ChannelIn lets a peer write a channel that programs of this machine read.
type ChannelIn struct {
	pipeline.Server
	err       *pipeline.FirstError
	device    *device.RDMA
	inlet     *attach.Inlet
	name      string // of the channel
	receiver  *channel.Receiver
	further   []*device.RDMA      // of further paths
	listeners []*connect.Listener // of each device
	secure    bool                // connections are TLS
	do        func(func() error) error
	serving   pipeline.Service
	book      *umem.Book
}

// OpenChannelIn opens the flow. It lets a peer in after Begin.
func OpenChannelIn(e *pipeline.Env) (*pipeline.Run, error) {
	if e.Shared.Attach == nil {
		return nil, errors.New("no program can attach: add attach.programs")
	}
	from := &e.Flow.From
	s := &ChannelIn{err: e.Err, book: e.Book, do: e.Do, name: e.Flow.To.Channel, secure: e.Shared.Credentials != nil}
	var err error
	if s.device, err = e.UseDevice(from.RDMA); err != nil {
		return nil, err
	}
	if s.inlet, err = e.Shared.Attach.Inlet(s.name); err != nil {
		return nil, err
	}
	e.Undo.Add(s.inlet.Close)
	var others []*stream.Endpoint
	addresses := []string{from.Listen}
	for _, p := range from.Paths {
		d, err := e.UseDevice(p.RDMA)
		if err != nil {
			return nil, err
		}
		s.further, others, addresses = append(s.further, d), append(others, d.In(from.Class)), append(addresses, p.Listen)
	}
	s.receiver, err = channel.OpenReceiver(channel.ReceiverConfig{
		Name: e.Name(), Flow: e.Flow.Name, Inlet: s.inlet, Endpoint: s.device.In(from.Class), Others: others, Worker: e.Holder,
		Permit: device.Permit(from.Allow), AllowAnyGID: from.AllowAnyGID, Events: e.Events, Log: e.Log,
	})
	if err != nil {
		return nil, err
	}
	e.Undo.Add(s.receiver.Close)
	c := connect.Config{Credentials: e.Shared.Credentials, Failed: device.LogFailures(e.Log)}
	for _, at := range addresses {
		l, err := connect.Listen(context.Background(), at, c)
		if err != nil {
			return nil, err
		}
		e.Undo.Add(l.Close)
		s.listeners = append(s.listeners, l)
	}
	e.Undo.Add(s.serving.Wait)
	return pipeline.NewRun(e, s, numa.Unknown, numa.Unknown), nil
}

// Poll is one round.
func (s *ChannelIn) Poll(now time.Time) (more bool) {
	if s.err.Get() == nil {
		var err error
		more, err = s.receiver.Poll(now)
		s.err.Note(err)
	}
	s.book.Publish()
	return more
}

func (s *ChannelIn) FDs(dst []unix.PollFd) []unix.PollFd { return s.receiver.FDs(dst) }

func (s *ChannelIn) Deadline(now time.Time) time.Time {
	return s.receiver.Deadline(now, now.Add(worker.MaxWait))
}

// Begin implements pipeline.Flow. It begins to accept a peer.
func (s *ChannelIn) Begin() error {
	s.serving.Start(func(ctx context.Context) error { return s.receiver.Serve(ctx, s.listeners, s.do) })
	return nil
}

// Traffic returns the messages that have arrived. Their bytes are not known: the daemon is not in their path.
func (s *ChannelIn) Traffic() (packets, bytes uint64) { return s.receiver.Messages(), 0 }

func (s *ChannelIn) Check(time.Time) (waits, ends error) {
	if err := s.serving.Err(); err != nil {
		return nil, err
	}
	return device.CheckAny(s.devices())
}

// StopReceiving ends the peer's connection. Programs still read what has arrived.
func (s *ChannelIn) StopReceiving() error { return s.serving.Wait() }

func (s *ChannelIn) Announce() []any {
	a := []any{"channel", s.name, "device", s.device.Name, "listens", s.listeners[0].Addr().String()}
	for i, d := range s.further {
		a = append(a, "path", d.Name+" at "+s.listeners[i+1].Addr().String())
	}
	for _, l := range s.listeners {
		if !s.secure {
			a = append(a, "plain", device.PlaintextWarning(l.Addr()))
		}
	}
	return a
}

// devices returns the devices of all paths.
func (s *ChannelIn) devices() []*device.RDMA { return append([]*device.RDMA{s.device}, s.further...) }

// paths returns the status of the devices, if there are several.
func (s *ChannelIn) paths() (all []status.ListenPath) {
	if len(s.further) == 0 {
		return nil
	}
	for i, d := range s.devices() {
		st := s.receiver.StatsAt(i)
		all = append(all, status.ListenPath{Device: d.Name, Listen: s.listeners[i].Addr().String(), Connected: st.Connections, Broken: st.Broken, Messages: st.Messages})
	}
	return all
}

func (s *ChannelIn) Observe(to *status.Flow) error {
	st := s.receiver.Stats()
	to.Packets = st.Messages
	to.Arrives = &status.Arrives{
		Channel: s.name, Device: s.device.Name, Listen: s.listeners[0].Addr().String(), TLS: s.secure, Peer: st.Peer, Since: st.Since, Connections: st.Connections,
		Messages: st.Messages, Batches: st.Signals, Gaps: st.Gaps, Renumbered: st.Renumbered, Refused: status.RefusedBy(st.Refused), Handshakes: device.Handshakes(s.listeners...), Paths: s.paths(),
	}
	return nil
}
