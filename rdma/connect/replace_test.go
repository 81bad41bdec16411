package connect

import (
	"crypto/x509"
	"errors"
	"os"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/authority"
	"github.com/unifiedd/unifiedd/rdma"
)

// trusting makes credentials that accept peers of several authorities.
func trusting(t *testing.T, own *Credentials, all ...*authority.Authority) *Credentials {
	t.Helper()
	pool := x509.NewCertPool()
	for _, a := range all {
		text, err := os.ReadFile(a.File())
		if err != nil || !pool.AppendCertsFromPEM(text) {
			t.Fatalf("%s: %v", a.File(), err)
		}
	}
	return &Credentials{Certificate: own.Certificate, Authority: pool}
}

// TestReplace: Replace ends at once the connections of peers that the new credentials do not
// accept, and no others. Later handshakes use the new credentials.
func TestReplace(t *testing.T) {
	a, b := authority.New(t), authority.New(t)
	own := credentials(t, a, "server", a)
	server := trusting(t, own, a, b)
	ours, theirs := pair(rdma.RC)
	l := listen(t, Config{Credentials: server})
	connected := func(name string, by *authority.Authority) (client, at *Conn) {
		t.Helper()
		served := serve(t, l, end(new(journal), "server", ours))
		client, err := Dial(t.Context(), l.Addr().String(), end(new(journal), name, theirs), Config{Credentials: credentials(t, by, name, a)})
		testenv.Must(t, err)
		return client, (<-served).conn
	}
	kept, keptServer := connected("kept", a)
	_, goneServer := connected("gone", b)

	next := trusting(t, own, a)
	if server.Same(next) || !server.Same(trusting(t, own, b, a)) {
		t.Error("Same does not tell authorities apart")
	}
	if ended := server.Replace(next); len(ended) != 1 || ended[0].Peer().Name != "gone" {
		t.Errorf("ended are %v", ended)
	}
	_, err := goneServer.Receive()
	wantReason(t, err, ReasonTLS, "not valid any more")
	select {
	case <-goneServer.Closed():
		t.Error("Closed says so before Close")
	default:
	}
	testenv.Check(t, goneServer.Close())
	<-goneServer.Closed()
	talk(t, kept, keptServer)
	if !server.Same(next) {
		t.Error("the old credentials are in use")
	}

	serve(t, l, end(new(journal), "server", ours))
	if _, err := Dial(t.Context(), l.Addr().String(), end(new(journal), "gone", theirs), Config{Credentials: credentials(t, b, "gone", a)}); !errors.As(err, new(*Error)) {
		t.Errorf("a peer of the old authority connects: %v", err)
	}
	waitFor(t, l, ReasonTLS, 1)
	testenv.Check(t, kept.Close())
	testenv.Check(t, keptServer.Close())
	if n := len(server.live.conns); n != 0 {
		t.Errorf("%d connections are still known", n)
	}
}

// TestNotify: Replace calls functions until they are stopped, and they see the new credentials.
func TestNotify(t *testing.T) {
	a, b := authority.New(t), authority.New(t)
	own := credentials(t, a, "server", a)
	c := trusting(t, own, a)
	first, second := 0, 0
	stop := c.Notify(func() { first++ })
	c.Notify(func() {
		second++
		if pool := c.TLS("other").RootCAs; !pool.Equal(trusting(t, own, b).Authority) {
			t.Error("a function sees the old authority")
		}
	})
	c.Replace(trusting(t, own, b))
	stop()
	c.Replace(trusting(t, own, b))
	if first != 1 || second != 2 {
		t.Errorf("called %d and %d times", first, second)
	}
}

// TestReplaceOfClient: Replace also ends a client's connection to a server whose authority it no
// longer accepts.
func TestReplaceOfClient(t *testing.T) {
	a, b := authority.New(t), authority.New(t)
	ours, theirs := pair(rdma.RC)
	l := listen(t, Config{Credentials: credentials(t, a, "server", b)})
	server := serve(t, l, end(new(journal), "server", ours))
	mine := credentials(t, b, "client", a)
	client, err := Dial(t.Context(), l.Addr().String(), end(new(journal), "client", theirs), Config{Credentials: mine})
	testenv.Must(t, err)
	<-server
	if ended := mine.Replace(trusting(t, mine, a, b)); len(ended) != 0 {
		t.Errorf("ended are %v", ended)
	}
	if ended := mine.Replace(trusting(t, mine, b)); len(ended) != 1 {
		t.Errorf("ended are %v", ended)
	}
	_, err = client.Receive()
	wantReason(t, err, ReasonTLS, "not valid any more")
}
