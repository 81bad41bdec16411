package fabrics

import "github.com/unifiedd/unifiedd/nvme/fabrics/dhchap"

// MustAuthenticate is a bit in the result of Connect (ATR): the host must authenticate first.
const MustAuthenticate = 1 << 17

// authProtocol is the protocol that an Authentication Send or Receive must name (bytes 41 to 43).
// It is the only one.
const authProtocol = 0xe9<<24 | 1<<16 | 1<<8

// AuthLength returns the number of data bytes of an Authentication Send or Receive.
func AuthLength(c *Command) (uint32, Status) {
	if n := c.Words[1]; c.Words[0]&^0xff == authProtocol && n > 0 && n <= dhchap.Longest {
		return n, Success
	}
	return 0, InvalidField | DoNotRetry
}

// Session returns the session in which a host authenticates on a queue. It is nil if the host need
// not authenticate.
func (s *Subsystem) Session(host string) *dhchap.Session {
	if s.Keys == nil {
		return nil
	}
	return dhchap.NewSession(dhchap.Config{Host: host, Subsystem: s.NQN, Keys: s.Keys[host], Group: s.Group})
}
