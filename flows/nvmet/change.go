package nvmet

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/nvme/fabrics"
	"github.com/unifiedd/unifiedd/nvme/fabrics/dhchap"
)

// errNotAny and errOtherKey are the causes of the end of a host's queues after a change of the
// configuration.
var (
	errNotAny   = errors.New("the host may not be connected to the subsystem any more")
	errOtherKey = errors.New("the host's key has been exchanged")
)

// Change replaces the subsystems. A namespace of a subsystem with the same NQN stays, with all its
// commands, if all fields but Released and ANA are the same. It gets the size that its Disk has now. Commands that arrived before their
// namespace became inaccessible complete. Change removes the others, and new ones may have their
// numbers. Hosts get asynchronous events. Change ends hosts that may no longer connect or whose key
// has changed; ended is their number. After an error nothing has changed.
//
// The caller owns the disk of a removed namespace again when Namespace.Released is called, or the
// server is closed. Change is called on the server's thread.
func (s *Server) Change(subsystems []Subsystem) (ended int, err error) {
	next := s.config
	next.Subsystems = subsystems
	switch {
	case s.closed:
		return 0, fmt.Errorf("change NVMe target %s: %w", next.Name, unix.EBADF)
	case len(subsystems) == 0:
		return 0, fmt.Errorf("change NVMe target %s: it needs a subsystem", next.Name)
	}
	if err := next.checkSubsystems(); err != nil {
		return 0, fmt.Errorf("change NVMe target %s: %w", next.Name, err)
	}
	seen := s.seen()
	came, err := s.openNew(subsystems)
	if err != nil {
		return 0, fmt.Errorf("change NVMe target %s: %w", next.Name, err)
	}
	s.config.Subsystems = slices.Clone(subsystems)
	ended = s.retire()
	for i := range subsystems {
		ended += s.updateSubsystem(&subsystems[i], came)
	}
	s.tellDiscovery(seen)
	return ended, nil
}

// openNew opens the disks of new namespaces.
func (s *Server) openNew(subsystems []Subsystem) (came map[*Namespace]*disk, err error) {
	came = make(map[*Namespace]*disk)
	for i := range subsystems {
		c := &subsystems[i]
		for k := range c.Namespaces {
			n := &c.Namespaces[k]
			if s.served(c.NQN, n) != nil {
				continue
			}
			if came[n], err = s.openDisk(c.NQN, *n); err != nil {
				delete(came, n)
				for _, d := range came {
					err = errors.Join(err, s.queue.Remove(d.target))
					s.forget(d)
				}
				return nil, fmt.Errorf("namespace %d of %s: %w", n.ID, c.NQN, err)
			}
		}
	}
	return came, nil
}

// served returns the served namespace that equals a configured one; nil: there is none.
func (s *Server) served(nqn string, n *Namespace) *fabrics.Namespace {
	sub := s.find(nqn)
	if sub == nil {
		return nil
	}
	have := sub.Namespace(n.ID)
	if d := s.diskOf(have); d != nil && d.source == n.Disk && have.ReadOnly == n.ReadOnly && have.UUID == n.UUID {
		return have
	}
	return nil
}

// retire removes the subsystems that are no longer configured, with their hosts.
func (s *Server) retire() (ended int) {
	s.subsystems = slices.DeleteFunc(s.subsystems, func(sub *fabrics.Subsystem) bool {
		if sub.Discovery() || slices.ContainsFunc(s.config.Subsystems, func(c Subsystem) bool { return c.NQN == sub.NQN }) {
			return false
		}
		for _, h := range s.hosts {
			if h.Subsystem == sub {
				s.fail(h.admin, errNotAny)
				ended++
			}
		}
		for _, n := range sub.Namespaces {
			s.dismiss(s.diskOf(n))
		}
		sub.Namespaces = nil
		return true
	})
	return ended
}

// updateSubsystem applies the configuration to a subsystem.
func (s *Server) updateSubsystem(c *Subsystem, came map[*Namespace]*disk) (ended int) {
	sub := s.find(c.NQN)
	if sub == nil {
		sub = s.addSubsystem(c)
	}
	var all []*fabrics.Namespace
	var changed, resized []uint32
	otherState := false
	for k := range c.Namespaces {
		n := &c.Namespaces[k]
		if d := came[n]; d != nil {
			all, changed = append(all, d.Namespace), append(changed, n.ID)
			continue
		}
		have := sub.Namespace(n.ID)
		if size := n.Disk.Size(); have.Size != size {
			have.Size = size
			resized = append(resized, n.ID)
		}
		otherState = sub.SetANA(have, cmp.Or(n.ANA, fabrics.ANAOptimized)) || otherState
		all = append(all, have)
	}
	for _, n := range sub.Namespaces {
		if !slices.Contains(all, n) {
			changed = append(changed, n.ID)
			s.dismiss(s.diskOf(n))
		}
	}
	if len(changed) > 0 {
		sub.ANAChanges++
	}
	before := sub.Keys
	sub.Namespaces, sub.Hosts, sub.Keys, sub.Group = all, c.Hosts, c.Keys, c.Group
	return s.tellHosts(sub, append(changed, resized...), otherState, before)
}

// tellHosts notifies the hosts of a subsystem about changed namespaces and ANA states, and ends hosts that are no
// longer permitted. It also ends a host whose key has changed: that host has only proved that it
// has the old key.
func (s *Server) tellHosts(sub *fabrics.Subsystem, changed []uint32, otherState bool, before map[string]dhchap.Keys) (ended int) {
	for _, h := range s.hosts {
		name := h.Host.HostNQN
		switch {
		case h.Subsystem != sub:
			continue
		case !sub.Allows(name):
			s.fail(h.admin, errNotAny)
			ended++
			continue
		case !before[name].Equal(sub.Keys[name]):
			s.fail(h.admin, errOtherKey)
			ended++
			continue
		}
		for _, id := range changed {
			h.Changed(id)
		}
		if otherState {
			h.ANAChanged()
		}
		s.tell(h)
	}
	return ended
}

// seen returns, for each host that is connected to the discovery subsystem, its present discovery
// log.
func (s *Server) seen() map[*host][]fabrics.Entry {
	all := make(map[*host][]fabrics.Entry)
	for _, h := range s.hosts {
		if h.Subsystem.Discovery() {
			_, all[h] = s.discover(&h.Controller)
		}
	}
	return all
}

// tellDiscovery notifies the hosts whose discovery log has changed.
func (s *Server) tellDiscovery(before map[*host][]fabrics.Entry) {
	s.generation++
	for h, now := range s.seen() {
		if !slices.Equal(before[h], now) {
			h.Renewed()
			s.tell(h)
		}
	}
}

// dismiss removes the disk of a removed namespace when the disk is no longer in use.
func (s *Server) dismiss(d *disk) {
	d.gone = true
	s.releaseDisk(d)
}

// releaseDisk removes an unused disk from the disks' queue and gives it back to its owner.
func (s *Server) releaseDisk(d *disk) {
	if !d.gone || d.users > 0 {
		return
	}
	if err := s.queue.Remove(d.target); err != nil {
		s.config.Log.Error("could not close a disk", "target", s.config.Name, "namespace", d.ID, "err", err)
		return
	}
	s.forget(d)
	if d.released != nil {
		d.released()
	}
}

func (s *Server) forget(d *disk) {
	s.disks = slices.DeleteFunc(s.disks, func(other *disk) bool { return other == d })
	s.publishDisks()
}
