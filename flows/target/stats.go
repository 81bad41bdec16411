package target

import (
	"sync/atomic"

	"github.com/unifiedd/unifiedd/internal/counter"
	"github.com/unifiedd/unifiedd/internal/latency"
	"github.com/unifiedd/unifiedd/nvme"
	"github.com/unifiedd/unifiedd/nvme/fabrics"
)

// Stats are a server's counters since it was opened.
type Stats struct {
	Commands        uint64 // that came, those refused too
	Admin           uint64 // of those, admin commands
	Read, Written   Moved  // commands that were done, and their hosts know it
	Flushes, Zeroes uint64
	Discards        uint64 // Dataset Management commands
	Compares        uint64
	InCapsule       uint64                          // bytes of writes that came with their commands
	Brought         uint64                          // bytes of data that hosts gave, of writes and of other commands, in capsules and fetched
	Waited          uint64                          // commands that waited for a buffer
	Abandoned       uint64                          // commands that were not answered, because their queue ended
	Refused         uint64                          // commands that were answered with an error of the host's
	Failed          uint64                          // commands that a disk did not do
	Ended           uint64                          // queues that were ended for what their hosts did, or because they failed
	Expired         uint64                          // hosts that fell silent
	GaveWay         uint64                          // queues whose hosts had proven nothing, and whose place went to a newer one
	Unproven        uint64                          // queues whose hosts did not prove who they are
	Rejected        map[fabrics.RejectReason]uint64 // queues that were refused
	Hosts, Queues   uint64                          // that are connected; admin queues are queues too
	Latency         *latency.Summary                // from when a command came until its completion was given to the RDMA device; nil: none yet
	Disk            nvme.Stats
}

// HostStats are the counters of one controller of a host's since it connected.
type HostStats struct {
	NQN, Subsystem string
	Controller     uint16
	Commands       uint64 // that came
	Refused        uint64 // of those, that had an error
	Queues         uint64
	Read, Written  Moved
}

// HostStats may be called from any goroutine. Hosts are in the order in which they connected.
func (s *Server) HostStats() (all []HostStats) {
	known := s.count.known.Load()
	if known == nil {
		return nil
	}
	for _, h := range *known {
		c := &h.count
		all = append(all, HostStats{NQN: h.Host.HostNQN, Subsystem: h.Subsystem.NQN, Controller: h.ID, Commands: c.commands.Load(), Refused: c.refused.Load(), Queues: c.queues.Load(),
			Read: c.read.load(), Written: c.written.load()})
	}
	return all
}

// NamespaceStats are the counters of one disk since it became a namespace.
type NamespaceStats struct {
	Disk            *nvme.Target // as Namespace.Disk
	Read, Written   Moved
	Flushes, Zeroes uint64
	Discards        uint64
	Compares        uint64
	Refused, Failed uint64 // commands with an error of the host's, and those that the disk did not do
}

// NamespaceStats may be called from any goroutine. It has those too that are no namespaces any more and not free yet.
func (s *Server) NamespaceStats() (all []NamespaceStats) {
	known := s.count.disks.Load()
	if known == nil {
		return nil
	}
	for _, d := range *known {
		c := &d.count
		all = append(all, NamespaceStats{Disk: d.source, Read: c.read.load(), Written: c.written.load(), Flushes: c.flushes.Load(), Zeroes: c.zeroes.Load(), Discards: c.discard.Load(),
			Compares: c.compares.Load(), Refused: c.refused.Load(), Failed: c.failed.Load()})
	}
	return all
}

// Moved is commands of one kind, and their bytes.
type Moved struct{ Commands, Bytes uint64 }

// Stats may be called from any goroutine.
func (s *Server) Stats() Stats {
	c := &s.count
	st := Stats{
		Commands: c.commands.Load(), Admin: c.admin.Load(), Read: c.read.load(), Written: c.written.load(), Flushes: c.flushes.Load(), Zeroes: c.zeroes.Load(),
		Discards: c.discard.Load(), Compares: c.compares.Load(), InCapsule: c.inCapsule.Load(), Brought: c.brought.Load(), Waited: c.waited.Load(), Abandoned: c.abandoned.Load(),
		Refused: c.refused.Load(), Failed: c.failed.Load(), Ended: c.ended.Load(), Expired: c.expired.Load(), GaveWay: c.gaveWay.Load(), Unproven: c.unproven.Load(), Hosts: c.hosts.Load(), Queues: c.queues.Load(),
		Rejected: map[fabrics.RejectReason]uint64{}, Latency: c.latency.Summary(), Disk: s.queue.Stats(),
	}
	for why := fabrics.RejectReason(1); why < fabrics.RejectReasons; why++ {
		st.Rejected[why] = c.rejected[why].Load()
	}
	return st
}

func (m *moved) load() Moved { return Moved{m.operations.Load(), m.bytes.Load()} }

// moved is operations of one kind, and their bytes.
type moved struct{ operations, bytes counter.Counter }

func (m *moved) add(n uint64) {
	m.operations.Add(1)
	m.bytes.Add(n)
}

// hostCounters are one host's.
type hostCounters struct {
	commands, queues, refused counter.Counter
	read, written             moved
}

// diskCounters are one namespace's.
type diskCounters struct {
	read, written            moved
	flushes, zeroes, discard counter.Counter
	compares                 counter.Counter
	refused, failed          counter.Counter
}

// counters are a server's.
type counters struct {
	commands, admin          counter.Counter
	read, written            moved
	flushes, zeroes, discard counter.Counter
	compares                 counter.Counter
	inCapsule                counter.Counter         // bytes of writes that came with their commands
	brought                  counter.Counter         // bytes of data that hosts gave, in capsules and fetched
	waited                   counter.Counter         // commands that waited for a buffer
	abandoned                counter.Counter         // commands of queues that ended
	refused                  counter.Counter         // commands that were answered with an error of the host's
	failed                   counter.Counter         // commands that the disk did not do
	unproven                 counter.Counter         // queues whose hosts did not prove who they are
	expired                  counter.Counter         // hosts that fell silent
	gaveWay                  counter.Counter         // queues whose hosts had proven nothing, and whose session went to another
	hosts, queues            counter.Counter         // that are connected
	known                    atomic.Pointer[[]*host] // those that are connected; nobody changes what is pointed to
	disks                    atomic.Pointer[[]*disk] // those that are served or not free yet, likewise
	latency                  latency.Shared
	ended                    atomic.Uint64                        // queue pairs that were ended for what their hosts did, or that failed; by any goroutine
	rejected                 [fabrics.RejectReasons]atomic.Uint64 // by any goroutine
}
