package flows

import (
	"cmp"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/attach"
	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/device"
	"github.com/unifiedd/unifiedd/flows/journal"
	"github.com/unifiedd/unifiedd/flows/pipeline"
	"github.com/unifiedd/unifiedd/flows/protocol"
	to "github.com/unifiedd/unifiedd/flows/sink/state"
	reader "github.com/unifiedd/unifiedd/flows/source/journal"
	"github.com/unifiedd/unifiedd/flows/source/message"
	from "github.com/unifiedd/unifiedd/flows/source/program"
	"github.com/unifiedd/unifiedd/flows/state"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/flows/worker"
	"github.com/unifiedd/unifiedd/internal/numa"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/connect"
	"github.com/unifiedd/unifiedd/umem"
)

// openAttachState applies messages of a program to a state, from where they lie. Positions go on where the state's end.
func openAttachState(e *pipeline.Env) (*pipeline.Run, error) {
	sink, err := to.Open(e, false)
	if err != nil {
		return nil, err
	}
	source, err := from.Open(e, from.Config{End: &journal.End{Next: sink.Position() + 1}})
	if err != nil {
		return nil, err
	}
	sink.SetFree(source.Free())
	return join(e, source, sink, numa.Unknown, numa.Unknown), nil
}

// openRDMAState applies messages of clients to a state.
func openRDMAState(e *pipeline.Env) (*pipeline.Run, error) {
	sink, err := to.Open(e, true)
	if err != nil {
		return nil, err
	}
	source, err := message.Open(e, message.Config{
		MinReserve: 2, MaxReserve: 2 * pipeline.Burst, Durability: protocol.Received, Numbered: true, Before: sink.Position(),
	})
	if err != nil {
		return nil, err
	}
	sink.SetFree(source.Free())
	source.Supply()
	return join(e, source, sink, numa.Unknown, numa.Unknown), nil
}

// openStorageState applies the records of a log to a state, and follows the log. The state's positions are the log's.
func openStorageState(e *pipeline.Env) (*pipeline.Run, error) {
	sink, err := to.Open(e, false)
	if err != nil {
		return nil, err
	}
	sink.SetFree(&umem.FreeList{}) // it gets no frames
	first := uint64(0)             // the oldest record
	if sink.Position() > 0 {
		first = sink.Position() + 1
	}
	source, err := reader.Open(e, first, sink)
	if err != nil {
		return nil, err
	}
	return join(e, source, sink, numa.Unknown, numa.Unknown), nil
}

// states are the states of a daemon, and the servers of those that peers may read.
type states struct {
	all     *state.Set
	servers map[string]*stateServer // by the name of the state
}

type stateServer struct {
	*state.Server
	device *device.RDMA
	secure bool
}

// stateConfigs returns what the states of a configuration have.
func stateConfigs(c *config.Config) (all []state.Config) {
	for _, s := range c.Attach.States {
		all = append(all, state.Config{Name: s.Name, Objects: uint64(s.Objects), Room: uint32(s.Room), Keys: uint64(s.Keys), Words: uint64(s.Words)})
	}
	return all
}

// openStates makes the states, and lets peers read them.
func (d *Daemon) openStates(undo *pipeline.Cleanup) (err error) {
	if len(d.config.Attach.States) == 0 {
		return nil
	}
	if d.states.all, err = state.Open(d.region, stateConfigs(d.config)); err != nil {
		return err
	}
	undo.Add(d.states.all.Close)
	d.states.servers = map[string]*stateServer{}
	for i := range d.config.Attach.States {
		if c := &d.config.Attach.States[i]; c.Remote.RDMA != "" {
			if err := d.serveState(c, undo); err != nil {
				return err
			}
		}
	}
	return nil
}

// serveState lets peers read a state.
func (d *Daemon) serveState(c *config.State, undo *pipeline.Cleanup) error {
	opened, err := d.devices.Open(c.Remote.RDMA)
	if err != nil {
		return err
	}
	undo.Add(func() error { return d.devices.Release(opened) })
	server, err := state.Serve(state.ServerConfig{
		State: d.states.all.Find(c.Name), Endpoint: opened.Endpoint, Listen: c.Remote.Listen, Clients: c.Remote.Clients,
		Permit: device.Permit(c.Remote.Allow), AllowAnyGID: c.Remote.AllowAnyGID,
		Connect: connect.Config{Credentials: d.secret, Failed: device.LogFailures(d.options.Log)}, Log: d.options.Log,
	})
	if err != nil {
		return err
	}
	undo.Add(server.Close)
	if err := d.answerBy(c.Remote.Worker, opened, undo); err != nil {
		return err
	}
	d.states.servers[c.Name] = &stateServer{server, opened, d.secret != nil}
	d.options.Log.Info("peers can read a state", "state", c.Name, "device", opened.Name, "listens", server.Addr().String(), "tls", d.secret != nil)
	if d.secret == nil {
		d.options.Log.Warn("plaintext connections", "state", c.Name, "risk", device.PlaintextWarning(server.Addr()))
	}
	return nil
}

// answerBy makes a worker drive a device in software, so that it answers READs at once.
func (d *Daemon) answerBy(name string, opened *device.RDMA, undo *pipeline.Cleanup) error {
	driven, is := opened.Device.(rdma.Progresser)
	if name == "" || !is {
		return nil
	}
	w, p := d.worker(name), &driver{driven}
	undo.Add(func() error { return w.Remove(p) })
	return w.Add(p, worker.Needs{Prompt: true})
}

// driver is a poller that only drives a device.
type driver struct{ device rdma.Progresser }

func (d *driver) Poll(time.Time) (more bool)            { d.device.Progress(); return false }
func (d *driver) FDs(dst []unix.PollFd) []unix.PollFd   { return dst }
func (d *driver) Deadline(now time.Time) (at time.Time) { return now.Add(worker.MaxWait) }

// readable returns the states that programs may read.
func (d *Daemon) readable() (all []attach.StateConfig) {
	for _, c := range d.config.Attach.States {
		if s := d.states.all.Find(c.Name); len(c.Readers) > 0 {
			all = append(all, attach.StateConfig{Name: c.Name, Readers: c.Readers, Part: s.Part(), Size: s.Size()})
		}
	}
	return all
}

// stateStatus describes the states.
func (d *Daemon) stateStatus() (all []status.SharedState) {
	for _, s := range d.states.all.All() {
		st := s.Stats()
		one := status.SharedState{
			Name: st.Name, Objects: st.Objects, Room: st.Room, Keys: st.Keys, Words: st.Words, Bytes: st.Bytes, Run: st.Run, Position: st.Position, Entries: st.Entries,
			Updates: st.Updates, Payload: st.Payload, Refused: st.Refused,
		}
		if d.attach != nil {
			for _, r := range d.attach.StateReaders(st.Name) {
				one.Readers = append(one.Readers, status.StateReader{Program: r.Program, Reading: r.Reading})
			}
		}
		if server := d.states.servers[st.Name]; server != nil {
			one.Remote = server.status()
		}
		all = append(all, one)
	}
	return all
}

func (s *stateServer) status() *status.StateServer {
	st := s.Stats()
	one := &status.StateServer{
		Device: s.device.Name, Listen: st.Listen, TLS: s.secure, Readers: st.Readers, Accepted: st.Accepted,
		Refused: status.RefusedBy(st.Refused), Handshakes: device.HandshakeCounts(st.Handshakes),
	}
	waits, ends := s.device.Check()
	if err := cmp.Or(st.Err, ends, waits); err != nil {
		one.Error = err.Error()
	}
	return one
}
