package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"time"
)

// reason returns why etcd does not answer. The client says only that time is over when connections fail, so that each
// endpoint is tried without it.
func (k *Client) reason(ctx context.Context, err error) string {
	if !errors.Is(err, context.DeadlineExceeded) {
		return explain(err)
	}
	for _, e := range k.config.Endpoints {
		if why := k.try(ctx, e); why != nil {
			return fmt.Sprintf("%s: %s", e, explain(why))
		}
	}
	return explain(err)
}

// tryLimit bounds how long one endpoint is tried, and hearLimit how long it may take to say something: a server that
// refuses a certificate says so after the handshake of TLS 1.3, and one that accepts it begins with its settings.
const tryLimit, hearLimit = time.Second, 300 * time.Millisecond

// try connects to an endpoint. It returns nil if that works.
func (k *Client) try(ctx context.Context, endpoint string) error {
	ctx, cancel := context.WithTimeout(ctx, tryLimit)
	defer cancel()
	u, err := url.Parse(endpoint)
	if err != nil {
		return err
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", u.Host)
	if err != nil {
		return err
	}
	defer conn.Close()
	secure, err := k.config.TLS.load(k.config.Endpoints)
	if err != nil || secure == nil {
		return err
	}
	secure.ServerName, secure.NextProtos = u.Hostname(), []string{"h2"}
	t := tls.Client(conn, secure)
	if err := t.HandshakeContext(ctx); err != nil {
		return err
	}
	_ = t.SetReadDeadline(time.Now().Add(hearLimit))
	if _, err := t.Read(make([]byte, 1)); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	return nil
}
