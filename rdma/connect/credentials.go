package connect

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"time"
)

// Credentials authenticate both sides. They are used by pointer, and may be replaced while
// connections use them.
type Credentials struct {
	Certificate tls.Certificate // ours, as client and as server
	Authority   *x509.CertPool  // must have signed the peer's certificate

	live live
}

// protocol is the ALPN name. With it, a redirected connection is not accepted with a certificate of
// another service.
const protocol = "unifiedd-rdma"

// LoadCredentials reads PEM files: our certificate (with the intermediate ones), its key, and the
// authority that signed the peers' certificates.
func LoadCredentials(certificate, key, authority string) (*Credentials, error) {
	pair, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("load the certificate %s with the key %s: %w", certificate, key, err)
	}
	text, err := os.ReadFile(authority)
	if err != nil {
		return nil, fmt.Errorf("load the authority: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("load the authority: there is no PEM certificate in %s", authority)
	}
	return &Credentials{Certificate: pair, Authority: pool}, nil
}

// Own returns the name in our certificate, as [NameOf] has it, and when the first of its chain expires. Both are of
// the certificate in use now. Any goroutine may call it.
func (c *Credentials) Own() (name string, expires time.Time) {
	for i, der := range c.current().Certificate.Certificate {
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			continue // an intermediate one, since loading parses the first
		}
		if i == 0 {
			name = NameOf(cert)
		}
		if expires.IsZero() || cert.NotAfter.Before(expires) {
			expires = cert.NotAfter
		}
	}
	return name, expires
}

// TLS returns the settings of TLS for both sides of another protocol with the same certificates. protocol
// is its ALPN name. They are those that are in use now: ask again for each connection. Any goroutine may
// call it. The result belongs to the caller.
func (c *Credentials) TLS(protocol string) *tls.Config {
	c = c.current()
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		Certificates:           []tls.Certificate{c.Certificate},
		RootCAs:                c.Authority,
		ClientCAs:              c.Authority,
		ClientAuth:             tls.RequireAndVerifyClientCert,
		NextProtos:             []string{protocol},
		SessionTicketsDisabled: true,
	}
}

// wrap makes a TLS connection, as client or as server.
type wrap func(net.Conn, *tls.Config) *tls.Conn

// secure makes the connection a TLS one if there are credentials, and authenticates the peer. name
// is the server's name.
func (s *session) secure(c *Credentials, as wrap, name string) error {
	if c == nil {
		s.peer.Plain = true
		return nil
	}
	config := c.TLS(protocol)
	config.ServerName = name
	t := as(s.conn, config)
	if err := t.HandshakeContext(s.ctx); err != nil {
		s.hint(err)
		s.linger()
		return s.fail("agree on TLS", &tlsError{explain(err)})
	}
	s.conn, s.credentials = t, c
	if got := t.ConnectionState().NegotiatedProtocol; got != protocol {
		return s.refuse("agree on TLS", &tlsError{fmt.Errorf("the peer speaks %q and not %q", got, protocol)})
	}
	s.peer.authenticated(t.ConnectionState())
	s.proof = proof{t.ConnectionState().PeerCertificates, name}
	return nil
}

// hint tells a peer that uses this protocol without TLS that TLS is required.
func (s *session) hint(err error) {
	if e, ok := errors.AsType[tls.RecordHeaderError](err); ok && string(e.RecordHeader[:len(magic)]) == magic {
		_ = writeMessage(s.conn, kindRefuse, []byte("TLS is wanted here: configure certificates"))
	}
}

// explain adds to TLS errors what they mean here.
func explain(err error) error {
	if is[tls.RecordHeaderError](err) {
		return fmt.Errorf("%w: the peer speaks no TLS (configure certificates on it, too)", err)
	}
	return err
}

// Peer is the identity of the other side.
type Peer struct {
	Addr net.Addr
	// Plain means that the peer is not authenticated, and that others in the network can read and
	// change messages.
	Plain bool
	// Name is the name in the peer's certificate: its first URI, else its first DNS name, else its
	// common name. Certificate is the whole certificate.
	Name        string
	Certificate *x509.Certificate
	// Cipher is the TLS version, key exchange and cipher.
	Cipher string
}

func (p *Peer) authenticated(s tls.ConnectionState) {
	p.Certificate = s.PeerCertificates[0]
	p.Name = NameOf(p.Certificate)
	p.Cipher = fmt.Sprintf("%s, %v, %s", tls.VersionName(s.Version), s.CurveID, tls.CipherSuiteName(s.CipherSuite))
}

// NameOf returns the name in a certificate, as Peer.Name has it.
func NameOf(c *x509.Certificate) string {
	switch {
	case len(c.URIs) > 0:
		return c.URIs[0].String()
	case len(c.DNSNames) > 0:
		return c.DNSNames[0]
	}
	return c.Subject.CommonName
}

func (p Peer) String() string {
	if p.Plain {
		return fmt.Sprintf("%v (plain TCP: not encrypted, and the peer not authenticated)", p.Addr)
	}
	return fmt.Sprintf("%q at %v (%s)", p.Name, p.Addr, p.Cipher)
}

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
