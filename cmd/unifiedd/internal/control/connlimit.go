package control

import (
	"net"
	"net/netip"
	"sync"

	"github.com/unifiedd/unifiedd/internal/addrlimit"
)

// The most connections of the metrics port: in all, and from one host.
const (
	maxScrapers        = 64
	maxScrapersPerHost = 16
)

// limitedListener limits connections, in all and from one host. A further connection closes the
// oldest one of its host, or of the host that has the most, so that idle connections do not block a
// scraper.
type limitedListener struct {
	net.Listener
	mu   sync.Mutex
	open *addrlimit.Set[*limitedConn]
}

func newLimitedListener(l net.Listener) *limitedListener {
	return &limitedListener{Listener: l, open: addrlimit.New[*limitedConn](maxScrapers, maxScrapersPerHost)}
}

// limitedConn is a connection that counts until it is closed.
type limitedConn struct {
	net.Conn
	l *limitedListener
}

// Accept implements [net.Listener].
func (l *limitedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	one := &limitedConn{conn, l}
	peer, _ := netip.ParseAddrPort(conn.RemoteAddr().String()) // a TCP address is always valid
	host := addrlimit.Host(peer.Addr())
	l.mu.Lock()
	limit, rivals := l.open.Full(host)
	l.open.Add(one, host)
	l.mu.Unlock()
	if limit != addrlimit.None {
		rivals[0].Close()
	}
	return one, nil
}

// Close implements [net.Conn].
func (c *limitedConn) Close() error {
	c.l.mu.Lock()
	c.l.open.Remove(c)
	c.l.mu.Unlock()
	return c.Conn.Close()
}
