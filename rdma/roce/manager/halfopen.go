package manager

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/addrlimit"
	"github.com/unifiedd/unifiedd/rdma/cm"
	"github.com/unifiedd/unifiedd/rdma/roce/mad"
)

// Bounds of requests whose peers have not proven that they hear us: by an RTU or an MRA, which name an identifier that we have said to them. SECURITY.md
// states them.
const (
	// MaxHalfOpen is how many there may be of all addresses.
	MaxHalfOpen = 128
	// MaxHalfOpenPerAddress is how many of one address, or IPv6 network of 64 bits.
	MaxHalfOpenPerAddress = 32
	// HalfOpenTime is how long a peer may take to confirm that it is connected. (Config.Service bounds how long a program may take to accept.)
	HalfOpenTime = 10 * time.Second
	// halfOpenPartings is how often such a peer is told that its connection ends.
	halfOpenPartings = 3
)

// admit makes a connection for a REQ. Where there are too many that are half open, the oldest gives way. nil: there are too many connections.
func (m *machine) admit(w peerPath) *connection {
	host := addrlimit.Host(w.remote.Addr())
	if limit, rivals := m.halfOpen.Full(host); limit != addrlimit.None {
		m.counts.add(map[addrlimit.Limit]counter{addrlimit.Network: addressLimit, addrlimit.All: halfOpenLimit}[limit])
		m.displace(rivals[0])
	}
	c := m.add(w)
	if c != nil {
		m.halfOpen.Add(c, host)
	}
	return c
}

// proven: the peer has named our identifier.
func (m *machine) proven(c *connection) { m.halfOpen.Remove(c) }

// displace ends a connection that is half open.
func (m *machine) displace(c *connection) {
	about := mad.AboutREQ
	if c.state != reqReceived {
		about = mad.AboutREP
	}
	m.reject(c, about, cm.ReasonNoResources, nil)
	m.wait(c)
	a := answer{event: cm.ConnectError}
	err := &cm.Error{Step: "connection", Event: cm.ConnectError, Kind: cm.ErrUnreachable, Errno: unix.EBUSY}
	m.finish(c, err)
	c.tell(a)
}

// purge leaves requests out that are over, of a listener whose program takes none.
func (l *listener) purge() {
	for range len(l.requests) {
		select {
		case c := <-l.requests:
			if !c.noticed {
				l.requests <- c
			}
		default: // the program took it
		}
	}
}
