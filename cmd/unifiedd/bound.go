package main

import (
	"net"
	"net/netip"
	"sync"

	"github.com/unifiedd/unifiedd/internal/addrlimit"
)

// What the metrics port holds at most: connections in all, and of one host.
const (
	maxScrapers        = 64
	maxScrapersPerHost = 16
)

// boundListener accepts at most so many connections. One more closes the oldest of its host, or of the host that has the most, so that
// connections that nobody uses keep no scraper out.
type boundListener struct {
	net.Listener
	mu   sync.Mutex
	open *addrlimit.Set[*boundConn]
}

func newBoundListener(l net.Listener) *boundListener {
	return &boundListener{Listener: l, open: addrlimit.New[*boundConn](maxScrapers, maxScrapersPerHost)}
}

// boundConn is a connection that counts until it is closed.
type boundConn struct {
	net.Conn
	l *boundListener
}

// Accept implements [net.Listener].
func (l *boundListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	one := &boundConn{conn, l}
	peer, _ := netip.ParseAddrPort(conn.RemoteAddr().String()) // of TCP it is one
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
func (c *boundConn) Close() error {
	c.l.mu.Lock()
	c.l.open.Remove(c)
	c.l.mu.Unlock()
	return c.Conn.Close()
}
