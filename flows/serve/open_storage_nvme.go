package serve

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"net"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/pipeline"
	"github.com/unifiedd/unifiedd/flows/target"
	"github.com/unifiedd/unifiedd/internal/numa"
	"github.com/unifiedd/unifiedd/nvme/fabrics"
	"github.com/unifiedd/unifiedd/nvme/fabrics/dhchap"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/cm"
	"github.com/unifiedd/unifiedd/rdma/roce"
	"github.com/unifiedd/unifiedd/rdma/roce/manager"
)

// openStorageNVMe opens both ends of a flow. No host is served until it has begun.
func OpenNVMe(e *pipeline.Env) (*pipeline.Run, error) {
	s := &NVMe{err: e.Err, log: e.Log, book: e.Book, do: e.Do, nqn: e.Flow.To.Subsystem}
	path := cmp.Or(e.Flow.From.Device, e.Flow.From.File)
	var err error
	if s.device, err = e.UseDevice(e.Flow.To.RDMA); err != nil {
		return nil, err
	}
	e.Undo.Add(s.namespaces.close)
	s.first = config.Namespace{ID: 1, Device: path, ReadOnly: e.Flow.To.ReadOnly}
	all, err := s.namespaces.open(s.list(&e.Flow.To), e.Flow.To.Force)
	if err != nil {
		return nil, err
	}
	s.namespaces.set(&e.Flow.To, all)
	if err := s.openServer(e); err != nil {
		return nil, err
	}
	if err := s.listen(e); err != nil {
		return nil, err
	}
	e.Undo.Add(s.serving.Wait)
	return pipeline.NewRun(e, s, numa.OfPath(path), numa.Unknown), nil
}

// capsuleBytes is how much data comes with a command: what is not longer needs no RDMA READ.
const inCapsule = 4096

func (s *NVMe) openServer(e *pipeline.Env) (err error) {
	to := &e.Flow.To
	if s.keys, s.group, err = HostKeys(to); err != nil {
		return err
	}
	s.server, err = target.Open(target.Config{
		Name: "flow " + e.Flow.Name, Endpoint: s.device.Endpoint, Worker: e.Holder, Seats: to.Clients, Queues: to.Clients - 1, Depth: to.Window,
		Capsule: min(inCapsule, e.Region.FrameSize()), Events: e.Events, Log: e.Log,
		Subsystems: s.subsystems(to, s.namespaces.all),
	})
	if err == nil {
		e.Undo.Add(s.server.Close)
	}
	return err
}

// hostKeys are the keys by which hosts prove who they are; nil: they need not.
func HostKeys(to *config.To) (map[string]dhchap.Keys, dhchap.Group, error) {
	if to.Keys == "" {
		return nil, dhchap.Null, nil
	}
	group, err := dhchap.GroupOf(string(to.Group))
	if err != nil {
		return nil, dhchap.Null, err
	}
	keys, err := dhchap.ReadKeys(to.Keys, fabrics.ValidNQN)
	return keys, group, err
}

// namespaceUUID is the same each time for a namespace of a subsystem: of version 8 (RFC 9562), by its name.
func namespaceUUID(nqn string, id uint32) [16]byte {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s namespace %d", nqn, id))
	u := [16]byte(sum[:])
	u[6], u[8] = u[6]&0x0f|0x80, u[8]&0x3f|0x80
	return u
}

// listen opens the connection manager that the device has.
func (s *NVMe) listen(e *pipeline.Env) (err error) {
	if s.manager, err = openManager(s.device.Device); err != nil {
		return err
	}
	e.Undo.Add(s.manager.Close)
	at, err := net.ResolveTCPAddr("tcp", e.Flow.To.Listen)
	if err != nil {
		return fmt.Errorf("listen at %s: %w", e.Flow.To.Listen, err)
	}
	place := at.AddrPort()
	if s.listener, err = s.manager.Listen(place, 0); err == nil {
		e.Undo.Add(s.listener.Close)
	}
	return err
}

// openManager opens the kernel's connection manager, or that of RoCE in software.
func openManager(d rdma.Device) (cm.Manager, error) {
	if soft, is := d.(*roce.Device); is {
		return manager.Open(soft, manager.Config{})
	}
	channel, err := cm.Open()
	if err != nil {
		return nil, err
	}
	return channel, nil
}

// serve takes hosts until the context ends.
func (s *NVMe) serve(ctx context.Context) error {
	return s.server.Serve(ctx, s.listener, s.do)
}
