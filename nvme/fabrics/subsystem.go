package fabrics

import (
	"slices"

	"github.com/unifiedd/unifiedd/nvme/fabrics/dhchap"
)

// DiscoveryNQN is the NQN of the discovery subsystem.
const DiscoveryNQN = "nqn.2014-08.org.nvmexpress.discovery"

// Subsystem is an NVM subsystem. Hosts connect to it.
type Subsystem struct {
	NQN        string
	Serial     string // 20 characters at most
	Model      string // 40
	Firmware   string // 8
	Namespaces []*Namespace
	ANAChanges uint64   // changes of the ANA log page: by SetANA, and by the caller for each other list of Namespaces
	Hosts      []string // NQNs of the hosts that may connect; nil: all

	Reservations bool // its namespaces have Reservations

	// Keys are the keys of hosts, by NQN. Group is the Diffie-Hellman group of their
	// authentication. Hosts without a key may not connect. Nil: no host authenticates.
	Keys  map[string]dhchap.Keys
	Group dhchap.Group

	Transfer uint32 // bytes of the longest transfer: a power of two from 8192
	Capsule  uint32 // bytes of data in a capsule, of I/O queues; 0: none
	Queues   uint16 // I/O queues of a controller at most
	Depth    uint16 // entries of a queue at most

	// Discover lists the entries for the controller's host, in a discovery subsystem. It is called
	// for each log page.
	Discover func(*Controller) (generation uint64, all []Entry)
}

// Discovery reports whether it is a discovery subsystem, which has no namespaces.
func (s *Subsystem) Discovery() bool { return s.Discover != nil }

// Allows reports whether a host may connect.
func (s *Subsystem) Allows(host string) bool {
	_, known := s.Keys[host]
	return (s.Keys == nil || known) && (s.Hosts == nil || slices.Contains(s.Hosts, host))
}

// Namespace returns the namespace with that ID; nil: there is none. It does not allocate.
func (s *Subsystem) Namespace(id uint32) *Namespace {
	for _, n := range s.Namespaces {
		if n.ID == id {
			return n
		}
	}
	return nil
}
