package connect

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"maps"
	"slices"
	"sync"
)

// live is what Replace needs to know: the credentials in use, and the open connections made with
// them.
type live struct {
	mu    sync.Mutex
	next  *Credentials // nil: the first are in use
	conns map[*Conn]proof
	told  map[*func()]struct{} // of Notify
}

// proof describes how a peer was authenticated.
type proof struct {
	chain  []*x509.Certificate // its certificate first
	server string              // the name that it must be valid for; empty: the peer is a client
}

var errRevoked = &tlsError{errors.New("the peer's certificate is not valid any more, by the authority that has been loaded since")}

// current returns the credentials in use.
func (c *Credentials) current() *Credentials {
	c.live.mu.Lock()
	defer c.live.mu.Unlock()
	if c.live.next != nil {
		return c.live.next
	}
	return c
}

// Replace makes all handshakes from now on use other credentials. It ends the connections whose
// peers' certificates the new credentials do not accept: they fail with ReasonTLS. It returns those
// connections. A queue pair works until its owner closes it. If the owner closes the queue pair
// before the Conn, Conn.Closed shows that both are closed. Any goroutine may call Replace.
func (c *Credentials) Replace(next *Credentials) (ended []*Conn) {
	c.live.mu.Lock()
	c.live.next = next
	for conn, p := range c.live.conns {
		if p.verify(next.Authority) != nil {
			ended = append(ended, conn)
			conn.revoke()
			delete(c.live.conns, conn)
		}
	}
	told := slices.Collect(maps.Keys(c.live.told))
	c.live.mu.Unlock()
	for _, f := range told {
		(*f)()
	}
	return ended
}

// Notify makes Replace call f when other credentials are in use, until stop is called: users of TLS have
// connections of their own, whose peers must prove again who they are. f runs on Replace's goroutine.
func (c *Credentials) Notify(f func()) (stop func()) {
	c.live.mu.Lock()
	defer c.live.mu.Unlock()
	if c.live.told == nil {
		c.live.told = make(map[*func()]struct{})
	}
	c.live.told[&f] = struct{}{}
	return func() {
		c.live.mu.Lock()
		defer c.live.mu.Unlock()
		delete(c.live.told, &f)
	}
}

// Same reports whether the credentials in use have the same certificate and authority as others.
func (c *Credentials) Same(other *Credentials) bool {
	now := c.current()
	return slices.EqualFunc(now.Certificate.Certificate, other.Certificate.Certificate, slices.Equal[[]byte]) && now.Authority.Equal(other.Authority)
}

// track adds a connection whose handshake is complete. The credentials may have been replaced since
// it began.
func (c *Credentials) track(conn *Conn, p proof) error {
	c.live.mu.Lock()
	defer c.live.mu.Unlock()
	if c.live.next != nil && p.verify(c.live.next.Authority) != nil {
		return errRevoked
	}
	if c.live.conns == nil {
		c.live.conns = make(map[*Conn]proof)
	}
	c.live.conns[conn] = p
	return nil
}

// forget removes a closed connection.
func (c *Credentials) forget(conn *Conn) {
	c.live.mu.Lock()
	defer c.live.mu.Unlock()
	delete(c.live.conns, conn)
}

// verify checks the peer's certificate as the handshake does.
func (p *proof) verify(authority *x509.CertPool) error {
	o := x509.VerifyOptions{Roots: authority, Intermediates: x509.NewCertPool(), DNSName: p.server, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	if p.server != "" {
		o.KeyUsages = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	}
	for _, c := range p.chain[1:] {
		o.Intermediates.AddCert(c)
	}
	_, err := p.chain[0].Verify(o)
	return err
}

// revoke ends a connection whose peer is no longer accepted. It does not wait for the peer.
func (c *Conn) revoke() {
	c.revoked.Store(true)
	if t, ok := c.conn.(*tls.Conn); ok {
		_ = t.NetConn().Close() // Close of the TLS connection would wait to send its alert
	}
}
