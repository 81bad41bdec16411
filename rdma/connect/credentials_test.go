package connect

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/rdma"
)

// authority signs certificates for a test, and writes them to files.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{dir: t.TempDir(), key: newKey(t)}
	a.cert = &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	a.cert = a.sign(t, "ca", a.cert, a.key)
	return a
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func (a *authority) sign(t *testing.T, name string, c *x509.Certificate, key *ecdsa.PrivateKey) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, c, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	a.write(t, name+".pem", "CERTIFICATE", der)
	a.write(t, name+".key", "PRIVATE KEY", private)
	signed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return signed
}

func (a *authority) write(t *testing.T, name, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(a.dir, name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}

// credentials of a host, good on loopback, that trust another authority, or the same.
func (a *authority) credentials(t *testing.T, name string, trusted *authority, change ...func(*x509.Certificate)) *Credentials {
	t.Helper()
	c := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	for _, f := range change {
		f(c)
	}
	a.sign(t, name, c, newKey(t))
	made, err := LoadCredentials(filepath.Join(a.dir, name+".pem"), filepath.Join(a.dir, name+".key"), filepath.Join(trusted.dir, "ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// TestMutualTLS: each side learns from the certificate who the other is, and that it is TLS 1.3.
func TestMutualTLS(t *testing.T) {
	a := newAuthority(t)
	spiffe := func(c *x509.Certificate) {
		c.URIs, c.DNSNames = []*url.URL{{Scheme: "spiffe", Host: "cluster", Path: "/node7"}}, []string{"node7"}
	}
	dns := func(c *x509.Certificate) { c.DNSNames = []string{"storage1", "storage1.example"} }
	ours, theirs := pair(rdma.RC)
	l := listen(t, Config{Credentials: a.credentials(t, "server", a, dns)})
	server := serve(t, l, end(new(journal), "server", ours))
	client, err := Dial(t.Context(), l.Addr().String(), end(new(journal), "client", theirs), Config{Credentials: a.credentials(t, "client", a, spiffe)})
	if err != nil {
		t.Fatal(err)
	}
	c := (<-server).conn
	if p := c.Peer(); p.Plain || p.Name != "spiffe://cluster/node7" || p.Certificate.Subject.CommonName != "client" {
		t.Errorf("the server's peer is %v", p)
	}
	if p := client.Peer(); p.Plain || p.Name != "storage1" || !strings.Contains(p.String(), `"storage1" at 127.0.0.1`) || !strings.Contains(p.String(), "TLS 1.3") {
		t.Errorf("the client's peer is %v", p)
	}
	talk(t, client, c)
}

// TestTLSRefuses: whoever is not of the authority, or is not who was dialled, or speaks none.
func TestTLSRefuses(t *testing.T) {
	a, other := newAuthority(t), newAuthority(t)
	good := a.credentials(t, "good", a)
	old := func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Hour) }
	_, theirs := pair(rdma.RC)
	for name, c := range map[string]struct {
		server, client *Credentials
		serverName     string
		counted        Reason
		told           Reason
		says           string
	}{
		"a client of another authority": {good, other.credentials(t, "mallory", a), "", ReasonTLS, ReasonTLS, "certificate"},
		"a server of another authority": {other.credentials(t, "mallory2", a), good, "", ReasonTLS, ReasonTLS, "unknown authority"},
		"another server than meant":     {good, good, "other.example", ReasonTLS, ReasonTLS, "other.example"},
		"a client that expired":         {good, a.credentials(t, "expired", a, old), "", ReasonTLS, ReasonTLS, "certificate"},
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

// TestTLSAsksForMore: a client without a certificate, one of another protocol, and one of an older
// version, all of whom the server itself is fine for.
func TestTLSAsksForMore(t *testing.T) {
	a := newAuthority(t)
	good := a.credentials(t, "good", a)
	for name, change := range map[string]func(*tls.Config){
		"no certificate":   func(c *tls.Config) { c.Certificates = nil },
		"no protocol":      func(c *tls.Config) { c.NextProtos = nil },
		"another protocol": func(c *tls.Config) { c.NextProtos = []string{"h2"} },
		"TLS 1.2":          func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS12, tls.VersionTLS12 },
	} {
		t.Run(name, func(t *testing.T) {
			l := listen(t, Config{Credentials: good})
			config := good.config()
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
	a := newAuthority(t)
	a.credentials(t, "good", a)
	file := func(name string) string { return filepath.Join(a.dir, name) }
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
