package fabrics

import "github.com/unifiedd/unifiedd/nvme/fabrics/dhchap"

// MustAuthenticate is a bit in the result of Connect (ATR): the host must authenticate first.
const MustAuthenticate = 1 << 17

// What an Authentication Send or Receive says of its data: the protocol, which is the one that there is (bytes 41 to 43).
const authProtocol = 0xe9<<24 | 1<<16 | 1<<8

// AuthLength is how many bytes of data an Authentication Send or Receive has.
func AuthLength(c *Command) (uint32, Status) {
	if n := c.Words[1]; c.Words[0]&^0xff == authProtocol && n > 0 && n <= dhchap.Longest {
		return n, Success
	}
	return 0, InvalidField | DoNotRetry
}

// Session is in which a host proves who it is on a queue; nil: it need not.
func (s *Subsystem) Session(host string) *dhchap.Session {
	if s.Keys == nil {
		return nil
	}
	return dhchap.NewSession(dhchap.Config{Host: host, Subsystem: s.NQN, Keys: s.Keys[host], Group: s.Group})
}
