package nvmet

import (
	"sync/atomic"

	"github.com/unifiedd/unifiedd/internal/counter"
	"github.com/unifiedd/unifiedd/internal/latency"
	"github.com/unifiedd/unifiedd/nvme"
	"github.com/unifiedd/unifiedd/nvme/fabrics"
)

// Stats are the counters of a server since it was opened.
type Stats struct {
	Commands        uint64 // received, including refused ones
	Admin           uint64 // admin commands among them
	Read, Written   Moved  // commands whose completion has arrived at the host
	Flushes, Zeroes uint64
	Discards        uint64 // Dataset Management commands
	Compares        uint64
	InCapsule       uint64                          // bytes of writes in capsules
	Brought         uint64                          // bytes of data from hosts, for all commands, in capsules and by READ
	Waited          uint64                          // commands that waited for a buffer
	Abandoned       uint64                          // commands without an answer, because their queue ended
	Refused         uint64                          // commands answered with an error that the host caused
	Failed          uint64                          // commands that failed at a disk
	Inaccessible    uint64                          // commands to namespaces that are ANAInaccessible, or were removed
	Conflicts       uint64                          // commands that a reservation of another host forbids
	Reservations    uint64                          // commands of reservations
	Ended           uint64                          // queues ended because their host broke the protocol, or because they failed
	Expired         uint64                          // hosts that were silent for too long
	GaveWay         uint64                          // unproven queues ended in favour of newer ones
	Unproven        uint64                          // queues whose authentication failed
	Rejected        map[fabrics.RejectReason]uint64 // refused queues
	Hosts, Queues   uint64                          // connected; including admin queues
	Latency         *latency.Summary                // from the arrival of a command until its completion was posted; nil: none yet
	Disk            nvme.Stats
}

// HostStats are the counters of one host's controller since it connected.
type HostStats struct {
	NQN, Subsystem string
	Controller     uint16
	Commands       uint64 // received
	Refused        uint64 // those answered with an error
	Queues         uint64
	Read, Written  Moved
}

// HostStats may be called from any goroutine. The hosts are in the order in which they connected.
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
	Refused, Failed uint64 // commands with an error of the host, and commands that the disk failed
	Inaccessible    uint64 // commands that came while it was ANAInaccessible
	Conflicts       uint64 // commands that a reservation of another host forbade
	Reservation     string // the type of the one in force; empty: there is none
	Reservations    uint64 // commands of reservations
}

// NamespaceStats may be called from any goroutine. It includes removed namespaces whose disk is
// still in use.
func (s *Server) NamespaceStats() (all []NamespaceStats) {
	known := s.count.disks.Load()
	if known == nil {
		return nil
	}
	for _, d := range *known {
		c := &d.count
		reservation := ""
		if s.reserving.keeper != nil {
			reservation = s.reserving.obeyed.Load().of(d.place).Type.String()
		}
		all = append(all, NamespaceStats{Disk: d.source, Read: c.read.load(), Written: c.written.load(), Flushes: c.flushes.Load(), Zeroes: c.zeroes.Load(), Discards: c.discard.Load(),
			Compares: c.compares.Load(), Refused: c.refused.Load(), Failed: c.failed.Load(), Inaccessible: c.inaccessible.Load(),
			Conflicts: c.conflicts.Load(), Reservations: c.reservations.Load(), Reservation: reservation})
	}
	return all
}

// Moved counts commands of one kind, and their bytes.
type Moved struct{ Commands, Bytes uint64 }

// Stats may be called from any goroutine.
func (s *Server) Stats() Stats {
	c := &s.count
	st := Stats{
		Commands: c.commands.Load(), Admin: c.admin.Load(), Read: c.read.load(), Written: c.written.load(), Flushes: c.flushes.Load(), Zeroes: c.zeroes.Load(),
		Discards: c.discard.Load(), Compares: c.compares.Load(), InCapsule: c.inCapsule.Load(), Brought: c.brought.Load(), Waited: c.waited.Load(), Abandoned: c.abandoned.Load(),
		Refused: c.refused.Load(), Failed: c.failed.Load(), Inaccessible: c.inaccessible.Load(), Conflicts: c.conflicts.Load(), Reservations: c.reservations.Load(), Ended: c.ended.Load(), Expired: c.expired.Load(), GaveWay: c.gaveWay.Load(), Unproven: c.unproven.Load(), Hosts: c.hosts.Load(), Queues: c.queues.Load(),
		Rejected: map[fabrics.RejectReason]uint64{}, Latency: c.latency.Summary(), Disk: s.queue.Stats(),
	}
	for why := fabrics.RejectReason(1); why < fabrics.RejectReasons; why++ {
		st.Rejected[why] = c.rejected[why].Load()
	}
	return st
}

// Traffic returns the completed commands and the bytes that hosts read and wrote. Any goroutine may call it. It
// does not allocate.
func (s *Server) Traffic() (commands, bytes uint64) {
	c := &s.count
	return c.commands.Load(), c.read.bytes.Load() + c.written.bytes.Load()
}

func (m *moved) load() Moved { return Moved{m.operations.Load(), m.bytes.Load()} }

// moved counts operations of one kind, and their bytes.
type moved struct{ operations, bytes counter.Counter }

func (m *moved) add(n uint64) {
	m.operations.Add(1)
	m.bytes.Add(n)
}

// hostCounters are the counters of one host.
type hostCounters struct {
	commands, queues, refused counter.Counter
	read, written             moved
}

// diskCounters are the counters of one namespace.
type diskCounters struct {
	read, written            moved
	flushes, zeroes, discard counter.Counter
	compares                 counter.Counter
	refused, failed          counter.Counter
	inaccessible, conflicts  counter.Counter
	reservations             counter.Counter
}

// counters are the counters of a server.
type counters struct {
	commands, admin          counter.Counter
	read, written            moved
	flushes, zeroes, discard counter.Counter
	compares                 counter.Counter
	inCapsule                counter.Counter         // bytes of writes in capsules
	brought                  counter.Counter         // bytes of data from hosts, in capsules and by READ
	waited                   counter.Counter         // commands that waited for a buffer
	abandoned                counter.Counter         // commands of queues that ended
	refused                  counter.Counter         // commands answered with an error that the host caused
	failed                   counter.Counter         // commands that failed at the disk
	inaccessible             counter.Counter         // commands to namespaces that cannot be reached here
	conflicts                counter.Counter         // commands that a reservation forbids
	reservations             counter.Counter         // commands of reservations
	unproven                 counter.Counter         // queues whose authentication failed
	expired                  counter.Counter         // hosts that were silent for too long
	gaveWay                  counter.Counter         // unproven queues ended in favour of newer ones
	hosts, queues            counter.Counter         // connected
	known                    atomic.Pointer[[]*host] // the connected hosts; the list is replaced as a whole
	disks                    atomic.Pointer[[]*disk] // the disks served or still in use; the list is replaced as a whole
	latency                  latency.Shared
	ended                    atomic.Uint64                        // written by any goroutine
	rejected                 [fabrics.RejectReasons]atomic.Uint64 // written by any goroutine
}
