package nvmet

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"github.com/unifiedd/unifiedd/nvme"
	"github.com/unifiedd/unifiedd/nvme/fabrics"
	"github.com/unifiedd/unifiedd/umem"
)

// roomForDisks is the number of disks that a server may have in addition to the number at the
// start.
const roomForDisks = 64

// openDisks makes the configured subsystems, and the queue for all their disks.
func (s *Server) openDisks() (err error) {
	c := &s.config
	disks := roomForDisks
	for _, sub := range c.Subsystems {
		disks += len(sub.Namespaces)
		for _, n := range sub.Namespaces {
			s.nodes = s.nodes || n.Disk.Passthrough()
		}
	}
	s.queue, err = nvme.Open(nvme.Config{Worker: c.Worker, Name: "NVMe target " + c.Name, Depth: c.Disk, Targets: disks, Passthrough: s.nodes, Apart: true})
	if err != nil {
		return err
	}
	if k := s.reserving.keeper; k != nil {
		if err := s.queue.Hold(int(k.held.Fd())); err != nil {
			return err
		}
	}
	s.generation = 1
	s.openDiscovery()
	for i := range c.Subsystems {
		if err := s.openSubsystem(&c.Subsystems[i]); err != nil {
			return err
		}
	}
	return nil
}

func (s *Server) openSubsystem(c *Subsystem) error {
	sub := s.addSubsystem(c)
	for _, n := range c.Namespaces {
		d, err := s.openDisk(c.NQN, n)
		if err != nil {
			return fmt.Errorf("namespace %d of %s: %w", n.ID, c.NQN, err)
		}
		sub.Namespaces = append(sub.Namespaces, d.Namespace)
	}
	return nil
}

// addSubsystem adds a subsystem without namespaces.
func (s *Server) addSubsystem(c *Subsystem) *fabrics.Subsystem {
	sub := s.newSubsystem(c.NQN)
	sub.Hosts, sub.Keys, sub.Group = c.Hosts, c.Keys, c.Group
	sub.Reservations = s.reserving.keeper != nil
	if sub.Serial = c.Serial; sub.Serial == "" {
		sub.Serial = serial(c.NQN)
	}
	s.subsystems = append(s.subsystems, sub)
	return sub
}

// newSubsystem makes a subsystem without namespaces.
func (s *Server) newSubsystem(nqn string) *fabrics.Subsystem {
	c := &s.config
	return &fabrics.Subsystem{NQN: nqn, Model: "unifiedd", Firmware: "1", Transfer: transfer(s.region.ExtentSize()), Capsule: c.Capsule,
		Queues: uint16(c.Queues), Depth: uint16(c.Depth)}
}

func (s *Server) openDisk(nqn string, n Namespace) (*disk, error) {
	if n.Disk.Passthrough() && !s.nodes {
		return nil, fmt.Errorf("%s is an NVMe node, and the target was started without one, for which its queue has no room: restart the daemon, or name the block device of the node",
			n.Disk.Path())
	}
	t, err := s.queue.Add(n.Disk)
	if err != nil {
		return nil, err
	}
	limits, block := n.Disk.Limits(), max(n.Disk.Alignment().Offset, 512)
	d := &disk{place: place{nqn, n.ID}, target: t, source: n.Disk, released: n.Released, Namespace: &fabrics.Namespace{ID: n.ID, Size: n.Disk.Size(), Shift: uint8(bits.TrailingZeros32(block)), ReadOnly: n.ReadOnly,
		UUID: n.UUID, ANA: n.ANA, Reservations: s.reservationsOf(nqn, n.ID), Discard: limits.Discard > 0 || !n.Disk.Block(), Preferred: uint32(limits.Physical / uint64(block))}}
	s.disks = append(s.disks, d)
	s.publishDisks()
	return d, nil
}

// publishDisks publishes the list of disks for NamespaceStats.
func (s *Server) publishDisks() {
	known := slices.Clone(s.disks)
	s.count.disks.Store(&known)
}

// disk returns the disk of a namespace by number; nil: there is none.
func (s *Server) disk(of *fabrics.Subsystem, id uint32) *disk {
	return s.diskOf(of.Namespace(id))
}

func (s *Server) diskOf(n *fabrics.Namespace) *disk {
	for _, d := range s.disks {
		if d.Namespace == n {
			return d
		}
	}
	return nil
}

// serial returns a serial number made of the end of an NQN.
func serial(nqn string) string {
	end := nqn[strings.LastIndexByte(nqn, ':')+1:]
	return end[max(0, len(end)-20):]
}

// outgoing are frames that the disks' queue has not taken yet.
type outgoing struct{ reads, writes, durable []umem.Frame }

func (o *outgoing) make(most int) {
	for _, l := range []*[]umem.Frame{&o.reads, &o.writes, &o.durable} {
		*l = make([]umem.Frame, 0, most)
	}
}

// submit passes frames to the disks' queue.
func (s *Server) submit() {
	s.submitToDisk(&s.out.reads, s.queue.Supply(s.out.reads))
	s.submitToDisk(&s.out.writes, s.queue.Send(s.out.writes))
	s.submitToDisk(&s.out.durable, s.queue.SendDurable(s.out.durable))
}

// submitToDisk records that the queue took the first n frames.
func (s *Server) submitToDisk(l *[]umem.Frame, n int) {
	for _, f := range (*l)[:n] {
		op, i := diskToken(s.region.Side(f).Token)
		s.operations[op].buffers[i].where = atDisk
	}
	*l = (*l)[:copy(*l, (*l)[n:])]
}

// token encodes the operation and the buffer of a frame.
func token(op int32, i int) uint64 { return uint64(op)<<1 | uint64(i) }

func diskToken(t uint64) (op int32, i int) { return int32(t >> 1), int(t & 1) }

// takeDone processes completions of the disks, and returns their number.
func (s *Server) takeDone() (n int) {
	n = s.takeFramesOf(s.queue.Recv) + s.takeFramesOf(s.queue.Reap)
	got := s.queue.Flushed(s.flushed[:])
	for _, r := range s.flushed[:got] {
		s.ranged(int32(r.Token), r.Err)
	}
	return n + got
}

// batches limits the number of polls of the disks' queue in one round.
const batches = 8

func (s *Server) takeFramesOf(verb func([]umem.Frame) int) (n int) {
	for range batches {
		got := verb(s.ready)
		for _, f := range s.ready[:got] {
			op, i := diskToken(s.region.Side(f).Token)
			o := &s.operations[op]
			o.buffers[i].where = atWorker
			o.disk.moving--
			s.moves--
			s.transferred(op, f.Err())
		}
		if n += got; got < len(s.ready) {
			break
		}
	}
	return n
}
