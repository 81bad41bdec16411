package transport

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/group"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/authority"
)

// member is one transport and what it received.
type member struct {
	*Transport
	got  chan group.Message
	lost chan uint32
	log  *lines
}

// lines is a log.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), text)
}

// open opens a member that knows no others yet.
func open(t *testing.T, c Config) *member {
	t.Helper()
	m := &member{got: make(chan group.Message, 1000), lost: make(chan uint32, 10), log: &lines{}}
	c.Listen, c.Log = "127.0.0.1:0", slog.New(slog.NewTextHandler(m.log, nil))
	if c.Group == "" {
		c.Group = "orders"
	}
	c.Received, c.Lost = func(one group.Message) { m.got <- one }, func(n uint32) { m.lost <- n }
	var err error
	m.Transport, err = Open(c, nil)
	testenv.Must(t, err)
	t.Cleanup(func() { _ = m.Close() })
	return m
}

func (m *member) as(number uint32, name string) Peer {
	return Peer{Number: number, Addresses: []string{m.Addr().String()}, Name: name}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(testenv.Within(10 * time.Second)); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

// tlsOf returns a configuration with a certificate of a name.
func tlsOf(t *testing.T, a *authority.Authority, name string) func() *tls.Config {
	t.Helper()
	certificate, err := tls.LoadX509KeyPair(a.Issue(t, name))
	testenv.Must(t, err)
	text, err := os.ReadFile(a.File())
	testenv.Must(t, err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	return func() *tls.Config {
		return &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{certificate}, RootCAs: pool, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert}
	}
}

func nameOf(c *x509.Certificate) string { return c.Subject.CommonName }

// TestMessages: messages arrive in order, in both directions. A member notices within moments that
// another is gone, and is connected again when it comes back.
func TestMessages(t *testing.T) {
	a, b := open(t, Config{Self: 1}), open(t, Config{Self: 2})
	a.SetPeers([]Peer{a.as(1, ""), b.as(2, "")})
	b.SetPeers([]Peer{a.as(1, ""), b.as(2, "")})
	eventually(t, "both are connected", func() bool { return a.Connected(2) && b.Connected(1) })
	for i := range uint64(100) {
		a.Send(&group.Message{From: 1, To: 2, Kind: group.KindSeal, Epoch: i})
		b.Send(&group.Message{From: 2, To: 1, Kind: group.KindFollow, Epoch: i})
		if i%50 == 49 {
			time.Sleep(20 * time.Millisecond) // a queue has 256 places
		}
	}
	for i := range uint64(100) {
		if m := <-b.got; m.Epoch != i || m.From != 1 || m.To != 2 || m.Kind != group.KindSeal {
			t.Fatalf("message %d is %+v", i, m)
		}
		if m := <-a.got; m.Epoch != i || m.From != 2 {
			t.Fatalf("message %d is %+v", i, m)
		}
	}
	a.Send(&group.Message{To: 3})
	if s := a.Stats(); s.Sent != 100 || s.Dropped != 1 || s.Received != 100 {
		t.Errorf("%+v", s)
	}
	began := time.Now()
	_ = b.Close()
	if n := <-a.lost; n != 2 {
		t.Errorf("member %d is lost, want 2", n)
	}
	t.Logf("the end of a member is noticed after %v", time.Since(began))
	eventually(t, "a knows that b is gone", func() bool { return !a.Connected(2) })
	back := open(t, Config{Self: 2})
	back.SetPeers([]Peer{a.as(1, "")})
	a.SetPeers([]Peer{back.as(2, "")})
	eventually(t, "they are connected again", func() bool { return a.Connected(2) && back.Connected(1) })
}

// TestCertificates: a member must have the certificate of its number, on both sides. Reconnect asks
// for certificates anew.
func TestCertificates(t *testing.T) {
	ours, others := authority.New(t), authority.New(t)
	a := open(t, Config{Self: 1, TLS: tlsOf(t, ours, "a"), NameOf: nameOf})
	b := open(t, Config{Self: 2, TLS: tlsOf(t, ours, "b"), NameOf: nameOf})
	a.SetPeers([]Peer{b.as(2, "b")})
	b.SetPeers([]Peer{a.as(1, "a")})
	eventually(t, "both are connected", func() bool { return a.Connected(2) && b.Connected(1) })
	a.Reconnect()
	eventually(t, "they are connected again", func() bool { return a.Connected(2) && b.Connected(1) })
	for _, c := range []struct {
		name, text string
		config     Config
	}{
		{"another's certificate", `whose certificate is of \"b\", and has one of \"mallory\"`, Config{Self: 2, TLS: tlsOf(t, ours, "mallory"), NameOf: nameOf}},
		{"another authority", "remote error: tls: ", Config{Self: 2, TLS: tlsOf(t, others, "b"), NameOf: nameOf}},
		{"no TLS", "first record does not look like a TLS handshake", Config{Self: 2}},
		{"another group", `this is member 1 of group \"orders\"`, Config{Self: 2, Group: "trades", TLS: tlsOf(t, ours, "b"), NameOf: nameOf}},
		{"a member that is not in the group", "member 9, which is not in the group", Config{Self: 9, TLS: tlsOf(t, ours, "b"), NameOf: nameOf}},
	} {
		bad := open(t, c.config)
		bad.SetPeers([]Peer{a.as(1, "a")})
		eventually(t, c.name+" is refused with a reason", func() bool { return a.log.has(c.text) })
		if bad.Connected(1) {
			t.Errorf("%s: it is connected", c.name)
		}
		_ = bad.Close()
	}
	if !a.Connected(2) || !b.Connected(1) {
		t.Error("the members are not connected any more")
	}
}

// TestHostile: what is no message ends the connection, and only that one.
func TestHostile(t *testing.T) {
	a := open(t, Config{Self: 1})
	b := open(t, Config{Self: 2})
	a.SetPeers([]Peer{b.as(2, ""), {Number: 3, Addresses: []string{"127.0.0.1:1"}}})
	b.SetPeers([]Peer{a.as(1, "")})
	eventually(t, "both are connected", func() bool { return a.Connected(2) && b.Connected(1) })
	greeting := frame((&hello{3, 1, "orders"}).append(make([]byte, frameHeader)))
	for _, bytes := range []string{"GET / HTTP/1.0\r\n\r\n", strings.Repeat("\x00", 100), "\xff\xff\xff\xff1234567", string(greeting) + string(frame([]byte("        \x09nothing"))), string(greeting) + string(frame([]byte("        \x01")))} {
		c, err := net.Dial("tcp", a.Addr().String())
		testenv.Must(t, err)
		_, _ = c.Write([]byte(bytes))
		_ = c.SetReadDeadline(time.Now().Add(testenv.Within(10 * time.Second)))
		for one := make([]byte, 100); err == nil; {
			_, err = c.Read(one)
		}
		if e, ok := err.(net.Error); ok && e.Timeout() {
			t.Errorf("after %.20q the connection stays", bytes)
		}
		_ = c.Close()
	}
	if !a.Connected(2) || !b.Connected(1) {
		t.Error("the members are not connected any more")
	}
}

// TestSilentPeers: a member connects however many connections of others say nothing, and however often they come again. The
// newest replaces the oldest of its host, or of the host that has the most.
func TestSilentPeers(t *testing.T) {
	testenv.Leaks(t)
	a, b := open(t, Config{Self: 1}), open(t, Config{Self: 2})
	var held, ended sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer ended.Wait()
	defer stop()
	const hosts, each = 20, 40 // more than maxEarly
	for i := range hosts {
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(i))}}
		for range each {
			held.Add(1)
			ended.Go(func() {
				for first := true; ctx.Err() == nil; first = false {
					c, err := dialer.DialContext(ctx, "tcp4", a.Addr().String())
					if first {
						held.Done()
					}
					if err != nil {
						continue
					}
					end := context.AfterFunc(ctx, func() { _ = c.Close() })
					_, _ = c.Read(make([]byte, 1)) // until it is replaced, or late
					end()
					_ = c.Close()
				}
			})
		}
	}
	held.Wait()
	eventually(t, "connections are replaced", func() bool { return a.Stats().Refused > hosts*each-maxEarly })
	for range 5 {
		a.SetPeers([]Peer{b.as(2, "")})
		b.SetPeers([]Peer{a.as(1, "")})
		eventually(t, "both are connected", func() bool { return a.Connected(2) && b.Connected(1) })
		b.SetPeers(nil)
		eventually(t, "a member is gone", func() bool { return !b.Connected(1) })
	}
	a.mu.Lock()
	if n := a.early.Len(); n > maxEarly {
		t.Errorf("%d connections have said nothing, and at most %d may", n, maxEarly)
	}
	a.mu.Unlock()
}

// TestSilentHost: a host has no more silent connections than its limit.
func TestSilentHost(t *testing.T) {
	a := open(t, Config{Self: 1})
	for range maxEarlyOfHost + 20 {
		c, err := net.Dial("tcp", a.Addr().String())
		testenv.Must(t, err)
		defer c.Close()
	}
	eventually(t, "the oldest are replaced", func() bool { return a.Stats().Refused == 20 })
	a.mu.Lock()
	defer a.mu.Unlock()
	if n := a.early.Len(); n != maxEarlyOfHost {
		t.Errorf("%d connections of a host, and not %d", n, maxEarlyOfHost)
	}
	text, err := os.ReadFile("../../../SECURITY.md")
	testenv.Must(t, err)
	if want := fmt.Sprintf("keeps at most %d connections whose peer has not said which member\nit is, %d of one host, for %v.", maxEarly, maxEarlyOfHost, helloTime); !strings.Contains(string(text), want) {
		t.Errorf("SECURITY.md does not say %q", want)
	}
}
