package etcd

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
)

// Files are PEM files for TLS to etcd. The zero value is no TLS.
type Files struct {
	Authority   string // that signed the certificates of etcd
	Certificate string // of this daemon; empty: etcd asks for none
	Key         string // of the certificate
}

// load returns the settings of TLS; nil: there is none. The certificate is read again for each connection, so that a
// renewed one needs no restart.
func (f Files) load(endpoints []string) (*tls.Config, error) {
	secure := false
	for _, e := range endpoints {
		secure = secure || strings.HasPrefix(e, "https://")
	}
	switch {
	case f == Files{} && secure:
		return nil, errors.New("etcd is at https, and needs cluster.tls")
	case f == Files{}:
		return nil, nil
	}
	text, err := os.ReadFile(f.Authority)
	if err != nil {
		return nil, fmt.Errorf("read the authority of etcd: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("read the authority of etcd: there is no PEM certificate in %s", f.Authority)
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool}
	if f.Certificate == "" {
		return c, nil
	}
	read := func() (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(f.Certificate, f.Key)
		if err != nil {
			return nil, fmt.Errorf("read the certificate %s for etcd with the key %s: %w", f.Certificate, f.Key, err)
		}
		return &pair, nil
	}
	if _, err := read(); err != nil {
		return nil, err
	}
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return read() }
	return c, nil
}
