package serve

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/device"
	"github.com/unifiedd/unifiedd/flows/nvmet"
	"github.com/unifiedd/unifiedd/flows/pipeline"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/flows/stream"
	"github.com/unifiedd/unifiedd/flows/worker"
	"github.com/unifiedd/unifiedd/internal/numa"
	"github.com/unifiedd/unifiedd/nvme/fabrics"
	"github.com/unifiedd/unifiedd/nvme/fabrics/dhchap"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/cm"
	"github.com/unifiedd/unifiedd/rdma/roce"
	rocecm "github.com/unifiedd/unifiedd/rdma/roce/cm"
	"github.com/unifiedd/unifiedd/umem"
)

// NVMe serves files and devices to NVMe hosts over RDMA:
//
//	write: command → RDMA READ → NVMe write → completion
//	read:  command → NVMe read → RDMA WRITE → completion
var _ pipeline.Flow = (*NVMe)(nil)

type NVMe struct {
	pipeline.Server
	err        *pipeline.FirstError
	log        *slog.Logger
	device     *device.RDMA
	first      config.Namespace // the flow's own file or device
	namespaces namespaces
	keys       map[string]dhchap.Keys
	group      dhchap.Group
	nqn        string
	server     *nvmet.Server
	manager    cm.Manager
	listener   cm.Listener
	do         stream.Doer
	serving    pipeline.Service
	health     pipeline.Health // of the first disk
	book       *umem.Book
}

// Poll is one round.
func (s *NVMe) Poll(now time.Time) (more bool) {
	if s.err.Get() == nil {
		var err error
		more, err = s.server.Poll(now)
		s.err.Note(err)
	}
	s.book.Publish()
	return more
}

func (s *NVMe) FDs(dst []unix.PollFd) []unix.PollFd { return s.server.FDs(dst) }

func (s *NVMe) Deadline(now time.Time) time.Time {
	return s.server.Deadline(now, now.Add(worker.MaxWait))
}

// Begin starts to accept hosts.
func (s *NVMe) Begin() error {
	s.serving.Start(s.serve)
	return nil
}

// Traffic returns the number of commands, and the bytes that they transferred.
func (s *NVMe) Traffic() (packets, bytes uint64) {
	return s.server.Traffic()
}

func (s *NVMe) Check(now time.Time) (waits, ends error) {
	if err := s.serving.Err(); err != nil {
		return nil, err
	}
	if waits, ends = s.device.Check(); waits != nil || ends != nil {
		return waits, ends
	}
	if err := s.namespaces.closeReleased(); err != nil {
		s.log.Warn("could not close a removed disk", "err", err)
	}
	return s.health.Check(now, s.first.Path(), clientsWait, s.server.Stats().Disk), nil
}

// StopReceiving ends all connections. A host resends unanswered commands on another path, or after
// it has reconnected.
func (s *NVMe) StopReceiving() error { return s.serving.Wait() }

func (s *NVMe) Pending() int { return int(s.server.Stats().Disk.InFlight) }

func (s *NVMe) CloseQueue() error { return s.server.CloseWithin(time.Millisecond) }

// OpenNVMe opens an NVMe-oF target. It accepts hosts after Begin.
func OpenNVMe(e *pipeline.Env) (*pipeline.Run, error) {
	s := &NVMe{err: e.Err, log: e.Log, book: e.Book, do: e.Do, nqn: e.Flow.To.Subsystem}
	path := cmp.Or(e.Flow.From.Device, e.Flow.From.File)
	var err error
	if s.device, err = e.UseDevice(e.Flow.To.RDMA); err != nil {
		return nil, err
	}
	e.Undo.Add(s.namespaces.close)
	s.first = config.Namespace{ID: 1, Device: path, ReadOnly: e.Flow.To.ReadOnly}
	list := s.list(&e.Flow.To)
	all, err := s.namespaces.open(list, &e.Flow.To)
	if err != nil {
		return nil, err
	}
	s.namespaces.set(&e.Flow.To, list, all)
	if err := s.openServer(e); err != nil {
		return nil, err
	}
	if err := s.listen(e); err != nil {
		return nil, err
	}
	e.Undo.Add(s.serving.Wait)
	return pipeline.NewRun(e, s, numa.OfPath(path), numa.Unknown), nil
}

// inCapsule is the number of data bytes in a command capsule. Writes up to that length need no RDMA
// READ.
const inCapsule = 4096

func (s *NVMe) openServer(e *pipeline.Env) (err error) {
	to := &e.Flow.To
	if s.keys, s.group, err = hostKeys(to); err != nil {
		return err
	}
	s.server, err = nvmet.Open(nvmet.Config{
		Name: "flow " + e.Flow.Name, Endpoint: s.device.Endpoint, Worker: e.Holder, Sessions: to.Clients, Queues: to.Clients - 1, Depth: to.Window,
		Capsule: min(inCapsule, e.Region.FrameSize()), Events: e.Events, Log: e.Log,
		FirstController: to.Controllers[0], LastController: to.Controllers[1], Reservations: to.Reservations,
		Subsystems: s.subsystems(to, s.list(to), s.namespaces.all),
	})
	if err == nil {
		e.Undo.Add(s.server.Close)
	}
	return err
}

// hostKeys reads the keys by which hosts authenticate. It returns nil if hosts need not
// authenticate.
func hostKeys(to *config.To) (map[string]dhchap.Keys, dhchap.Group, error) {
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

// namespaceUUID returns the UUID of a namespace. It is derived from the namespace's name, so it
// never changes (version 8, RFC 9562).
func namespaceUUID(nqn string, id uint32) [16]byte {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s namespace %d", nqn, id))
	u := [16]byte(sum[:])
	u[6], u[8] = u[6]&0x0f|0x80, u[8]&0x3f|0x80
	return u
}

// listen opens the connection manager of the device.
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

// openManager opens the connection manager of the kernel, or of software RoCE.
func openManager(d rdma.Device) (cm.Manager, error) {
	if soft, is := d.(*roce.Device); is {
		return rocecm.Open(soft, rocecm.Config{})
	}
	channel, err := cm.Open()
	if err != nil {
		return nil, err
	}
	return channel, nil
}

// serve accepts hosts until the context ends.
func (s *NVMe) serve(ctx context.Context) error {
	return s.server.Serve(ctx, s.listener, s.do)
}

func (s *NVMe) Announce() []any {
	return []any{"device", s.device.Name, "listens", s.listener.Addr().String(), "subsystem", s.nqn, "bytes", s.namespaces.size()}
}

func (s *NVMe) Observe(to *status.Flow) error {
	st := s.server.Stats()
	to.Packets, to.Bytes, to.Latency = st.Commands, st.Read.Bytes+st.Written.Bytes, st.Latency
	to.Hosts = &status.Hosts{
		Device: s.device.Name, Listen: s.listener.Addr().String(), Subsystem: s.nqn, Subsystems: s.namespaces.subsystems(), Size: s.namespaces.size(), Namespaces: s.namespaces.status(s.server.NamespaceStats()), Hosts: st.Hosts, Queues: st.Queues,
		Commands: map[string]uint64{"read": st.Read.Commands, "write": st.Written.Commands, "flush": st.Flushes, "write_zeroes": st.Zeroes, "dataset_management": st.Discards,
			"compare": st.Compares, "admin": st.Admin, "refused": st.Refused, "failed": st.Failed, "abandoned": st.Abandoned, "inaccessible": st.Inaccessible, "reservation": st.Reservations, "conflict": st.Conflicts},
		Bytes:  map[string]uint64{"read": st.Read.Bytes, "written": st.Written.Bytes, "in_capsules": st.InCapsule},
		Waited: st.Waited, Ended: st.Ended, Expired: st.Expired, GaveWay: st.GaveWay, Rejected: rejectedBy(st.Rejected), Connected: hostsOf(s.server.HostStats()),
		Unproven: st.Unproven,
	}
	if s.device.Software {
		to.CopiedBytes["placed"] = st.Brought
	}
	to.KernelBytes["disk"] = st.Disk.Copied
	to.DiskErrors[unix.ErrnoName(unix.EIO)] = 0
	for errno, n := range st.Disk.Errors {
		to.DiskErrors[unix.ErrnoName(errno)] = n
	}
	return nil
}

func rejectedBy(counted map[fabrics.RejectReason]uint64) map[string]uint64 {
	all := map[string]uint64{}
	for why, n := range counted {
		all[why.Word()] = n
	}
	return all
}

// hostsOf adds up the counters of controllers for each host.
func hostsOf(controllers []nvmet.HostStats) (all []status.Host) {
	for _, c := range controllers {
		i := slices.IndexFunc(all, func(h status.Host) bool { return h.Name == c.NQN })
		if i < 0 {
			i = len(all)
			all = append(all, status.Host{Name: c.NQN, Commands: map[string]uint64{}, Bytes: map[string]uint64{}})
		}
		h := &all[i]
		h.Queues += c.Queues
		h.Commands["all"] += c.Commands
		h.Commands["refused"] += c.Refused
		h.Commands["read"] += c.Read.Commands
		h.Commands["write"] += c.Written.Commands
		h.Bytes["read"] += c.Read.Bytes
		h.Bytes["written"] += c.Written.Bytes
	}
	return all
}
