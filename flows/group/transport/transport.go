package transport

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/group"
	"github.com/unifiedd/unifiedd/internal/addrlimit"
	"github.com/unifiedd/unifiedd/internal/netdev"
)

// Peer is another member.
type Peer struct {
	Number    uint32
	Addresses []string // of its transport: they are dialed in turn until one answers
	Lacks     string   // why there are none
	Name      string   // that its certificate must have; empty without TLS
}

// same reports whether a connection to one of them is one to the other.
func (p *Peer) same(other *Peer) bool {
	return p.Number == other.Number && p.Name == other.Name && p.Lacks == other.Lacks && slices.Equal(p.Addresses, other.Addresses)
}

// Config configures a Transport.
type Config struct {
	Group  string // name of the group: at most 63 bytes
	Self   uint32
	Listen string
	// Further are more addresses to listen at, over other networks.
	Further []string
	// TLS returns the present TLS settings: certificates of both sides. nil: no TLS.
	TLS func() *tls.Config
	// NameOf returns the name in a certificate. It must be set with TLS.
	NameOf func(*x509.Certificate) string
	// Silence is how long a member may leave bytes unacknowledged, or not answer a dial, before it is dialed
	// again; 0: until TCP gives up. After a network was cut, TCP waits about as long as the cut lasted
	// before it sends again, and a new connection does not.
	Silence time.Duration
	// Release is that of this program, which the other members show: up to 63 characters.
	Release string
	// Received is called for each message, on a goroutine of its sender's connection. The message belongs
	// to the callee.
	Received func(group.Message)
	// Lost is called when a connection that a member dialed has ended: its process may have died. May be
	// nil.
	Lost func(member uint32)
	Log  *slog.Logger
}

// Protocol is the ALPN name of the transport, for Config.TLS.
const Protocol = "unifiedd-group"

const (
	// queueLength is how many messages wait for a connection.
	queueLength = 256
	// helloTime is how long connecting may take, hello included.
	helloTime = 3 * time.Second
	// firstWait and lastWait are the times between attempts to connect.
	firstWait, lastWait = 5 * time.Millisecond, 500 * time.Millisecond
	// sendTime is how long a peer may not take a message before it is disconnected.
	sendTime = 5 * time.Second
	// maxEarly is how many connections of others there are before their hello, and maxEarlyOfHost how many of those are of
	// one host. Members have one each afterwards. SECURITY.md has both.
	maxEarly, maxEarlyOfHost = 512, 64
)

// Transport is one member's connections. Any goroutine may call its methods.
type Transport struct {
	config    Config
	release   []byte // the field with Config.Release
	listeners []net.Listener
	ctx       context.Context
	cancel    context.CancelFunc
	all       sync.WaitGroup

	mu    sync.Mutex
	peers map[uint32]*peer
	conns map[net.Conn]uint32      // that others dialed; 0: no hello yet. Those that this side ends are removed
	early *addrlimit.Set[net.Conn] // those of conns without a hello
	// releases are those that members say over their present connections; empty: of one that says none.
	releases map[uint32]string

	logged atomic.Int64 // when a refusal was last logged

	stats struct{ sent, dropped, received, refused atomic.Uint64 }
}

// peer is another member, as this one sends to it.
type peer struct {
	Peer
	queue  chan []byte
	cancel context.CancelFunc
	up     atomic.Bool
	why    atomic.Pointer[string] // why there is no connection
}

// Open listens, and begins to dial the peers. The caller closes the Transport.
func Open(c Config, peers []Peer) (*Transport, error) {
	if len(c.Group) > maxName {
		return nil, fmt.Errorf("the group's name %q is longer than %d bytes", c.Group, maxName)
	}
	t := &Transport{config: c, release: fieldOf(c.Release), peers: map[uint32]*peer{}, releases: map[uint32]string{}, conns: map[net.Conn]uint32{}, early: addrlimit.New[net.Conn](maxEarly, maxEarlyOfHost)}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	for _, at := range append([]string{c.Listen}, c.Further...) {
		l, err := netdev.Listen(t.ctx, &net.ListenConfig{}, at)
		if err != nil {
			t.cancel()
			return nil, errors.Join(fmt.Errorf("listen for the members of group %s: %w", c.Group, err), t.closeListeners())
		}
		t.listeners = append(t.listeners, l)
	}
	for _, l := range t.listeners {
		t.all.Go(func() { t.accept(l) })
	}
	t.SetPeers(peers)
	return t, nil
}

// closeListeners ends listening.
func (t *Transport) closeListeners() error {
	var errs []error
	for _, l := range t.listeners {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}

// Addr returns where the transport listens: the first address.
func (t *Transport) Addr() net.Addr { return t.listeners[0].Addr() }

// Close ends all connections.
func (t *Transport) Close() error {
	t.cancel()
	err := t.closeListeners()
	t.Reconnect()
	t.all.Wait()
	return err
}

// Reconnect ends all connections. Members dial again, with the present TLS settings.
func (t *Transport) Reconnect() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.drop(func(uint32) bool { return true })
	for _, p := range t.peers {
		p.cancel()
		t.start(p.Peer)
	}
}

// SetPeers changes the other members. Connections to members that do not change stay.
func (t *Transport) SetPeers(peers []Peer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	keep, same := map[uint32]bool{}, map[uint32]bool{0: true}
	for _, p := range peers {
		if p.Number == t.config.Self {
			continue
		}
		keep[p.Number] = true
		if old := t.peers[p.Number]; old != nil {
			if old.same(&p) {
				same[p.Number] = true
				continue
			}
			old.cancel()
		}
		t.start(p)
	}
	for number, p := range t.peers {
		if !keep[number] {
			p.cancel()
			delete(t.peers, number)
		}
	}
	t.drop(func(number uint32) bool { return !same[number] })
}

// drop ends connections that others dialed. t.mu is held.
func (t *Transport) drop(which func(number uint32) bool) {
	for c, number := range t.conns {
		if which(number) {
			delete(t.conns, c)
			_ = c.Close() // its reader ends
		}
	}
}

// start begins to dial a peer. t.mu is held.
func (t *Transport) start(p Peer) {
	if t.ctx.Err() != nil {
		return
	}
	ctx, cancel := context.WithCancel(t.ctx)
	one := &peer{Peer: p, queue: make(chan []byte, queueLength), cancel: cancel}
	t.peers[p.Number] = one
	t.all.Go(func() { t.dial(ctx, one) })
}

// Send sends a message to the member One.To. It never blocks: a message that has no room is dropped.
func (t *Transport) Send(m *group.Message) {
	t.mu.Lock()
	p := t.peers[m.To]
	t.mu.Unlock()
	if p == nil || !p.up.Load() {
		t.stats.dropped.Add(1)
		return
	}
	b, err := appendMessage(make([]byte, frameHeader, 256), m)
	if m.Kind == group.KindElection {
		b = append(b, t.release...)
	}
	if err != nil || len(b) > maxFrame+frameHeader {
		t.stats.dropped.Add(1)
		t.config.Log.Error("a message to a member of the group cannot be sent", "member", m.To, "bytes", len(b), "err", err)
		return
	}
	select {
	case p.queue <- frame(b):
	default:
		t.stats.dropped.Add(1)
	}
}

// dial keeps a connection to a peer until ctx ends.
func (t *Transport) dial(ctx context.Context, p *peer) {
	if len(p.Addresses) == 0 { // until SetPeers knows one
		t.explain(p, "", fmt.Errorf("where it is, is not known: %s", p.Lacks))
		<-ctx.Done()
		return
	}
	wait := firstWait
	for attempt := 0; ctx.Err() == nil; attempt++ {
		began, address := time.Now(), p.Addresses[attempt%len(p.Addresses)]
		err := t.connection(ctx, p, address)
		p.up.Store(false)
		if ctx.Err() != nil {
			t.stats.dropped.Add(uint64(len(p.queue))) // another peer has taken its place
		}
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > lastWait {
			wait = firstWait
		}
		t.explain(p, address, err)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
		wait = min(2*wait, lastWait)
	}
}

// explain logs why there is no connection to a peer, each reason once.
func (t *Transport) explain(p *peer, address string, err error) {
	text := err.Error()
	if before := p.why.Swap(&text); before == nil || *before != text {
		t.config.Log.Warn("no connection to a member of the group: trying again", "member", p.Number, "address", address, "err", err)
	}
}

// connection connects to a peer and sends messages until the connection ends.
func (t *Transport) connection(ctx context.Context, p *peer, address string) error {
	hurry, cancel := context.WithTimeout(ctx, helloTime)
	defer cancel()
	conn, err := (&net.Dialer{Timeout: t.config.Silence, ControlContext: t.impatient}).DialContext(hurry, "tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	_ = conn.SetDeadline(time.Now().Add(helloTime)) // fails only if it is closed
	if conn, err = t.secure(hurry, conn, p); err != nil {
		return err
	}
	if err := t.greet(conn, p.Number); err != nil {
		return err
	}
	_ = conn.SetDeadline(time.Time{})
	ended := make(chan error, 1)
	t.all.Go(func() { ended <- silence(conn) })
	p.why.Store(nil)
	p.up.Store(true)
	t.config.Log.Info("connected to a member of the group", "member", p.Number, "address", address)
	for {
		select {
		case b := <-p.queue:
			_ = conn.SetWriteDeadline(time.Now().Add(sendTime))
			if _, err := conn.Write(b); err != nil {
				t.stats.dropped.Add(1)
				return err
			}
			t.stats.sent.Add(1)
		case err := <-ended:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// impatient makes the kernel end a connection whose peer does not acknowledge: TCP_USER_TIMEOUT, tcp(7).
func (t *Transport) impatient(_ context.Context, _, _ string, c syscall.RawConn) (err error) {
	bad := c.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(t.config.Silence.Milliseconds()))
	})
	return errors.Join(bad, err)
}

// silence waits until a peer closes the connection. A peer sends nothing over a connection that it
// did not dial.
func silence(conn net.Conn) error {
	var one [1]byte
	if _, err := conn.Read(one[:]); err != nil {
		return err
	}
	return errors.New("the member talks over a connection that it did not dial")
}

// secure makes a dialed connection a TLS one.
func (t *Transport) secure(ctx context.Context, conn net.Conn, p *peer) (net.Conn, error) {
	if t.config.TLS == nil {
		return conn, nil
	}
	c := t.config.TLS()
	c.InsecureSkipVerify = true // the certificate must be that of a member, wherever that is: VerifyConnection checks chain and name
	c.VerifyConnection = func(s tls.ConnectionState) error { return t.verify(&s, c.RootCAs, x509.ExtKeyUsageServerAuth, p.Name) }
	secure := tls.Client(conn, c)
	return secure, secure.HandshakeContext(ctx)
}

// verify checks a member's certificate.
func (t *Transport) verify(s *tls.ConnectionState, roots *x509.CertPool, use x509.ExtKeyUsage, name string) error {
	between := x509.NewCertPool()
	for _, c := range s.PeerCertificates[1:] {
		between.AddCert(c)
	}
	leaf := s.PeerCertificates[0]
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{use}}); err != nil {
		return err
	}
	if got := t.config.NameOf(leaf); got != name {
		return fmt.Errorf("the member's certificate is of %q, and the configuration says %q", got, name)
	}
	return nil
}

// greet says hello to a peer and checks its answer.
func (t *Transport) greet(conn net.Conn, to uint32) error {
	ours := hello{t.config.Self, to, t.config.Group}
	if _, err := conn.Write(frame(ours.append(make([]byte, frameHeader)))); err != nil {
		return err
	}
	b, err := readFrame(conn, nil, 128)
	if err != nil {
		return fmt.Errorf("the member does not answer the hello (its log says why): %w", err)
	}
	theirs, err := parseHello(b)
	if err != nil {
		return err
	}
	if want := (hello{to, t.config.Self, t.config.Group}); theirs != want {
		return fmt.Errorf("member %d of group %q answers, and not member %d of group %q", theirs.from, theirs.name, to, t.config.Group)
	}
	return nil
}

// accept takes connections of other members.
func (t *Transport) accept(l net.Listener) {
	for {
		conn, err := l.Accept()
		if t.ctx.Err() != nil {
			if err == nil {
				_ = conn.Close() // nothing was said
			}
			return
		}
		if err != nil {
			t.config.Log.Warn("could not accept a member of the group", "err", err)
			select {
			case <-time.After(lastWait): // the system has no more files or memory
			case <-t.ctx.Done():
			}
			continue
		}
		t.enter(conn)
		t.all.Go(func() { t.serve(conn) })
	}
}

// enter takes a connection in. If there are too many without a hello, it ends the oldest one of the same host, or of the host
// that has the most: a member says hello at once, and gets in however many others say nothing.
func (t *Transport) enter(conn net.Conn) {
	host := addrlimit.Host(conn.RemoteAddr().(*net.TCPAddr).AddrPort().Addr())
	t.mu.Lock()
	defer t.mu.Unlock()
	if limit, rivals := t.early.Full(host); limit != addrlimit.None {
		t.early.Remove(rivals[0])
		delete(t.conns, rivals[0])
		_ = rivals[0].Close() // its reader ends, and counts it
	}
	t.conns[conn] = 0
	t.early.Add(conn, host)
}

// serve reads the messages of a connection that a peer dialed.
func (t *Transport) serve(conn net.Conn) {
	defer conn.Close()
	from, err := t.listen(conn)
	t.mu.Lock()
	_, has := t.conns[conn]
	delete(t.conns, conn)
	if has {
		delete(t.releases, from)
	}
	t.mu.Unlock()
	switch {
	case t.ctx.Err() != nil:
		return
	case from == 0:
		t.stats.refused.Add(1)
		now, last := time.Now().UnixNano(), t.logged.Load()
		if now-last >= int64(time.Second) && t.logged.CompareAndSwap(last, now) { // any host can cause any number
			t.config.Log.Warn("a connection to the group's port was refused", "peer", conn.RemoteAddr().String(), "err", err)
		}
		return
	case errors.Is(err, errFrame):
		t.stats.refused.Add(1)
		t.config.Log.Warn("a member's message is malformed, and its connection has ended", "member", from, "err", err)
	default:
		t.config.Log.Info("the connection of a member of the group has ended", "member", from, "err", err)
	}
	if has && t.config.Lost != nil { // else this side has ended it
		t.config.Lost(from)
	}
}

// listen handles a connection until it ends. from is 0 if the peer was refused.
func (t *Transport) listen(raw net.Conn) (from uint32, err error) {
	waits := true
	defer func() {
		if waits {
			t.mu.Lock()
			defer t.mu.Unlock()
			t.early.Remove(raw)
		}
	}()
	_ = raw.SetDeadline(time.Now().Add(helloTime)) // fails only if it is closed
	conn, name := raw, ""
	if t.config.TLS != nil {
		secure := tls.Server(raw, t.config.TLS())
		if err := secure.HandshakeContext(t.ctx); err != nil {
			return 0, err
		}
		conn, name = secure, t.config.NameOf(secure.ConnectionState().PeerCertificates[0])
	}
	b, err := readFrame(conn, nil, 128)
	if err != nil {
		return 0, err
	}
	theirs, err := parseHello(b)
	if err == nil {
		err = t.admit(raw, &theirs, name)
	}
	if err != nil {
		return 0, err
	}
	waits = false
	ours := hello{t.config.Self, theirs.from, t.config.Group}
	if _, err := conn.Write(frame(ours.append(make([]byte, frameHeader)))); err != nil {
		return 0, err
	}
	_ = conn.SetDeadline(time.Time{})
	return theirs.from, t.receive(raw, conn, theirs.from)
}

// admit checks the hello of a peer whose certificate has a name. The peer's older connections end.
func (t *Transport) admit(raw net.Conn, h *hello, name string) error {
	if h.name != t.config.Group || h.to != t.config.Self {
		return fmt.Errorf("the peer wants member %d of group %q, and this is member %d of group %q", h.to, h.name, t.config.Self, t.config.Group)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.peers[h.from]
	_, has := t.conns[raw]
	switch {
	case p == nil:
		return fmt.Errorf("the peer says that it is member %d, which is not in the group", h.from)
	case t.config.TLS != nil && p.Name != name:
		return fmt.Errorf("the peer says that it is member %d, whose certificate is of %q, and has one of %q", h.from, p.Name, name)
	case !has:
		return net.ErrClosed
	}
	t.drop(func(number uint32) bool { return number == h.from })
	t.conns[raw] = h.from
	t.early.Remove(raw)
	return nil
}

// receive passes the messages of a connection on until it ends. conn is raw, or the TLS connection over it.
func (t *Transport) receive(raw, conn net.Conn, from uint32) error {
	in := bufio.NewReaderSize(conn, 16<<10)
	var buffer []byte
	release, said := "", false
	for {
		var err error
		if buffer, err = readFrame(in, buffer, maxFrame); err != nil {
			return err
		}
		m, err := parseMessage(buffer)
		if err != nil {
			return err
		}
		m.From, m.To = from, t.config.Self
		if m.Kind == group.KindElection {
			if now := takeRelease(m.Election); now != release || !said {
				release, said = now, true
				t.hear(raw, from, release)
			}
		}
		t.stats.received.Add(1)
		t.config.Received(m)
	}
}

// hear keeps which release a member says that it is of, unless the member has dialed again since.
func (t *Transport) hear(raw net.Conn, member uint32, release string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.conns[raw] == member {
		t.releases[member] = release
	}
}

// Releases returns which releases the members are of that are connected and say so, and that of this one.
func (t *Transport) Releases() map[uint32]string {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := maps.Clone(t.releases)
	all[t.config.Self] = t.config.Release
	return all
}

// Older reports whether a member says no release: it does not know what was added since.
func (t *Transport) Older(member uint32) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	release, said := t.releases[member]
	return said && release == ""
}

// Stats are counters since the transport was opened.
type Stats struct {
	Sent, Dropped, Received uint64 // messages
	Refused                 uint64 // connections
}

// Stats returns the counters.
func (t *Transport) Stats() Stats {
	return Stats{t.stats.sent.Load(), t.stats.dropped.Load(), t.stats.received.Load(), t.stats.refused.Load()}
}

// Connected reports whether a member can be sent messages.
func (t *Transport) Connected(member uint32) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.peers[member]
	return p != nil && p.up.Load()
}
