package nvmet

import "github.com/unifiedd/unifiedd/nvme/fabrics"

// openDiscovery adds the discovery subsystem.
func (s *Server) openDiscovery() {
	sub := s.newSubsystem(fabrics.DiscoveryNQN)
	sub.Serial, sub.Discover = "discovery", s.discover
	s.subsystems = append(s.subsystems, sub)
}

// discover lists the subsystems that a controller's host may connect to, at the address to which
// the host itself is connected. The generation changes with each Change.
func (s *Server) discover(c *fabrics.Controller) (generation uint64, all []fabrics.Entry) {
	for _, sub := range s.subsystems {
		if sub.Allows(c.Host.HostNQN) {
			all = append(all, fabrics.Entry{Subsystem: sub.NQN, Discovery: sub.Discovery(), At: c.At})
		}
	}
	return s.generation, all
}
