// Package authority signs certificates for tests.
package authority

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// Authority signs certificates for one test. Their files are removed when the test ends.
type Authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// New makes an authority with a certificate of its own in [Authority.File].
func New(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{dir: t.TempDir(), key: newKey(t)}
	a.cert = &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	a.cert = a.sign(t, "ca", a.cert, a.key)
	return a
}

// File is the PEM file of the authority's certificate.
func (a *Authority) File() string { return filepath.Join(a.dir, "ca.pem") }

// Issue signs a certificate with that common name, valid for an hour for the loopback address. It
// returns the paths of the PEM files of the certificate and its key. changes run before it signs.
func (a *Authority) Issue(t testing.TB, name string, changes ...func(*x509.Certificate)) (certificate, key string) {
	t.Helper()
	c := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	for _, change := range changes {
		change(c)
	}
	a.sign(t, name, c, newKey(t))
	return filepath.Join(a.dir, name+".pem"), filepath.Join(a.dir, name+".key")
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	testenv.Must(t, err)
	return key
}

func (a *Authority) sign(t testing.TB, name string, c *x509.Certificate, key *ecdsa.PrivateKey) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, c, a.cert, &key.PublicKey, a.key)
	testenv.Must(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	testenv.Must(t, err)
	a.write(t, name+".pem", "CERTIFICATE", der)
	a.write(t, name+".key", "PRIVATE KEY", private)
	signed, err := x509.ParseCertificate(der)
	testenv.Must(t, err)
	return signed
}

func (a *Authority) write(t testing.TB, name, kind string, der []byte) {
	t.Helper()
	testenv.Must(t, os.WriteFile(filepath.Join(a.dir, name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
}
