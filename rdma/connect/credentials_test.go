package connect

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/authority"
	"github.com/unifiedd/unifiedd/rdma"
)

// credentials makes credentials for a host, valid on loopback. They trust the authority given,
// which may be another one than their own.
func credentials(t *testing.T, a *authority.Authority, name string, trusted *authority.Authority, change ...func(*x509.Certificate)) *Credentials {
	t.Helper()
	certificate, key := a.Issue(t, name, change...)
	made, err := LoadCredentials(certificate, key, trusted.File())
	testenv.Must(t, err)
	return made
}

// TestMutualTLS: each side learns the other's name from its certificate, and the connection uses
// TLS 1.3.
func TestMutualTLS(t *testing.T) {
	a := authority.New(t)
	spiffe := func(c *x509.Certificate) {
		c.URIs, c.DNSNames = []*url.URL{{Scheme: "spiffe", Host: "cluster", Path: "/node7"}}, []string{"node7"}
	}
	dns := func(c *x509.Certificate) { c.DNSNames = []string{"storage1", "storage1.example"} }
	ours, theirs := pair(rdma.RC)
	l := listen(t, Config{Credentials: credentials(t, a, "server", a, dns)})
	server := serve(t, l, end(new(journal), "server", ours))
	client, err := Dial(t.Context(), l.Addr().String(), end(new(journal), "client", theirs), Config{Credentials: credentials(t, a, "client", a, spiffe)})
	testenv.Must(t, err)
	c := (<-server).conn
	if p := c.Peer(); p.Plain || p.Name != "spiffe://cluster/node7" || p.Certificate.Subject.CommonName != "client" {
		t.Errorf("the server's peer is %v", p)
	}
	if p := client.Peer(); p.Plain || p.Name != "storage1" || !strings.Contains(p.String(), `"storage1" at 127.0.0.1`) || !strings.Contains(p.String(), "TLS 1.3") {
		t.Errorf("the client's peer is %v", p)
	}
	talk(t, client, c)
}

// TestTLSRefuses: a handshake fails if the peer's certificate is of another authority, has another
// name or has expired, or if one side does not use TLS.
func TestTLSRefuses(t *testing.T) {
	a, other := authority.New(t), authority.New(t)
	good := credentials(t, a, "good", a)
	old := func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Hour) }
	_, theirs := pair(rdma.RC)
	for name, c := range map[string]struct {
		server, client *Credentials
		serverName     string
		counted        Reason
		told           Reason
		says           string
	}{
		"a client of another authority": {good, credentials(t, other, "mallory", a), "", ReasonTLS, ReasonTLS, "certificate"},
		"a server of another authority": {credentials(t, other, "mallory2", a), good, "", ReasonTLS, ReasonTLS, "unknown authority"},
		"another server than meant":     {good, good, "other.example", ReasonTLS, ReasonTLS, "other.example"},
		"a client that expired":         {good, credentials(t, a, "expired", a, old), "", ReasonTLS, ReasonTLS, "certificate"},
		"a client without TLS":          {good, nil, "", ReasonTLS, ReasonRefused, "TLS is wanted here"},
		"a server without TLS":          {nil, good, "", ReasonFormat, ReasonTLS, "speaks no TLS (configure certificates"},
	} {
		t.Run(name, func(t *testing.T) {
			l := listen(t, Config{Credentials: c.server})
			_, err := Dial(t.Context(), l.Addr().String(), end(new(journal), "client", theirs), Config{Credentials: c.client, ServerName: c.serverName})
			wantReason(t, err, c.told, c.says)
			waitFor(t, l, c.counted, 1)
		})
	}
}

// TestTLSAsksForMore: the server refuses clients without a certificate, with another protocol, or
// with an older TLS version, even if they accept the server.
func TestTLSAsksForMore(t *testing.T) {
	a := authority.New(t)
	good := credentials(t, a, "good", a)
	for name, change := range map[string]func(*tls.Config){
		"no certificate":   func(c *tls.Config) { c.Certificates = nil },
		"no protocol":      func(c *tls.Config) { c.NextProtos = nil },
		"another protocol": func(c *tls.Config) { c.NextProtos = []string{"h2"} },
		"TLS 1.2":          func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS12, tls.VersionTLS12 },
	} {
		t.Run(name, func(t *testing.T) {
			l := listen(t, Config{Credentials: good})
			config := good.TLS(protocol)
			config.ServerName = "127.0.0.1"
			change(config)
			conn, err := tls.Dial("tcp", l.Addr().String(), config)
			if err == nil {
				_, err = conn.Read(make([]byte, 1))
				_ = conn.Close()
			}
			if name != "no protocol" && err == nil {
				t.Error("it was taken")
			}
			waitFor(t, l, ReasonTLS, 1)
		})
	}
}

func TestLoadCredentialsSaysWhat(t *testing.T) {
	a := authority.New(t)
	credentials(t, a, "good", a)
	file := func(name string) string { return filepath.Join(filepath.Dir(a.File()), name) }
	for _, c := range []struct{ certificate, key, authority, says string }{
		{"none.pem", "good.key", "ca.pem", "none.pem"},
		{"good.pem", "ca.key", "ca.pem", "load the certificate"},
		{"good.pem", "good.key", "none.pem", "load the authority"},
		{"good.pem", "good.key", "good.key", "there is no PEM certificate in"},
	} {
		_, err := LoadCredentials(file(c.certificate), file(c.key), file(c.authority))
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v: %v", c, err)
		}
		if strings.HasPrefix(c.says, "none") && !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%v does not wrap what the system said", err)
		}
	}
}
