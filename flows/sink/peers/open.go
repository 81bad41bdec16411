package peers

import (
	"errors"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/device"
	"github.com/unifiedd/unifiedd/flows/fanout"
	"github.com/unifiedd/unifiedd/flows/layout"
	"github.com/unifiedd/unifiedd/flows/pipeline"
	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/flows/stream"
	"github.com/unifiedd/unifiedd/rdma/connect"
	"github.com/unifiedd/unifiedd/umem"
)

// Config is what a sink needs in addition to the configuration of its flow.
type Config struct {
	Free   *umem.FreeList // for frames that no peer needs
	Length uint32         // largest length of a packet or a message's payload
	Frames int            // most frames of a packet or message
	Queue  int            // most of them in flight to each peer
	Relay  bool           // batches have messages; payloads are sent with their origins
	// Records are the headers of messages, whose payloads are in the batches; nil: headers are in front of payloads.
	Records *layout.Records
}

// Open makes a sender for each peer. The senders connect after Begin.
func Open(e *pipeline.Env, c Config) (s *Sink, err error) {
	to := &e.Flow.To
	s = &Sink{region: e.Region, do: e.Do, relay: c.Relay, records: c.Records, free: c.Free, err: e.Err}
	if s.stages, err = pipeline.NewStages(e.Flow.Stages); err != nil {
		return nil, err
	}
	if s.device, err = e.UseDevice(to.RDMA); err != nil {
		return nil, err
	}
	f := fanout.Config{Name: e.Name(), Worker: e.Holder, Choose: fanout.Choose(to.Choose), Acknowledge: fanout.Acknowledge(to.Acknowledge), Frames: c.Frames}
	for _, p := range to.Peers {
		sender, err := s.openSender(e, c, p)
		if err != nil {
			return nil, errors.Join(err, closeSenders(f.Peers))
		}
		f.Peers = append(f.Peers, fanout.Peer{Sender: sender, Policy: fanout.Policy(p.Policy)})
		s.names, s.named, s.modes = append(s.names, p.Name), append(s.named, p.Peer), append(s.modes, string(p.PathMode))
	}
	s.asks(f.Peers, to.Peers)
	if s.fan, err = fanout.Open(f); err != nil {
		return nil, err
	}
	e.Undo.Add(s.fan.Close)
	e.Undo.Add(s.dials.Wait)
	return s, nil
}

func (s *Sink) openSender(e *pipeline.Env, c Config, p config.Peer) (*stream.Sender, error) {
	durability, err := protocol.ParseDurability(string(e.Flow.To.Durability))
	if err != nil {
		return nil, err
	}
	found, err := e.PlacesOf(&p)
	if err != nil {
		return nil, err
	}
	paths, further, err := device.PathsTo(&p, e.Flow.To.ClassOf(&p), e.UseDevice)
	if err != nil {
		return nil, err
	}
	s.further = append(s.further, further...)
	var places []stream.Place
	others := p.Others
	for _, one := range found {
		places, others = append(places, one), nil
	}
	return stream.OpenSender(stream.SenderConfig{
		Name: e.Name() + ", peer " + p.Name, Endpoint: s.device.In(e.Flow.To.ClassOf(&p)), Worker: e.Holder, Address: p.Address, Others: others, Places: places, Flow: p.Flow,
		Device: s.device.Name, Paths: paths, Active: p.PathMode == config.PathActive,
		Connect: connect.Config{Credentials: e.Shared.Credentials}, Durability: durability, Participant: uint32(e.Flow.To.Participant),
		Depth: c.Queue, Method: stream.Method(e.Flow.To.Method), Message: protocol.HeaderLen + c.Length, Frames: c.Frames,
		Events: e.Events, Log: e.Log, Times: &s.times,
	})
}

func closeSenders(all []fanout.Peer) error {
	var errs []error
	for _, p := range all {
		errs = append(errs, p.Sender.Close())
	}
	return errors.Join(errs...)
}
