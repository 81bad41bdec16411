package etcd

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"time"
)

// Health is what an endpoint says of itself.
type Health struct {
	Version string
	Leader  bool          // the member knows a leader
	Took    time.Duration // the answer
	Clock   time.Duration // by how much its clock is ahead of this machine's, to about a second; 0 if it does not say
}

// Probe asks one endpoint how it is.
func Probe(ctx context.Context, c Config, endpoint string) (h Health, err error) {
	c.Endpoints = []string{endpoint}
	client, err := dial(&c)
	if err != nil {
		return h, err
	}
	defer client.Close()
	begun := time.Now()
	answer, err := client.Status(ctx, endpoint)
	if err != nil {
		return h, fmt.Errorf("%s: %s", endpoint, explain(err))
	}
	h = Health{Version: answer.Version, Leader: answer.Leader != 0, Took: time.Since(begun)}
	secure, err := c.TLS.load(c.Endpoints)
	if err != nil {
		return h, err
	}
	h.Clock = clockOf(ctx, secure, endpoint)
	return h, nil
}

// clockOf compares the time in the header of an answer with the middle of the time that the answer took. The header has
// whole seconds.
func clockOf(ctx context.Context, secure *tls.Config, endpoint string) time.Duration {
	transport := &http.Transport{TLSClientConfig: secure}
	defer transport.CloseIdleConnections()
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, endpoint+"/version", nil)
	if err != nil {
		return 0
	}
	begun := time.Now()
	answer, err := (&http.Client{Transport: transport}).Do(q)
	if err != nil {
		return 0
	}
	answer.Body.Close()
	there, err := http.ParseTime(answer.Header.Get("Date"))
	if err != nil {
		return 0
	}
	return there.Add(500 * time.Millisecond).Sub(begun.Add(time.Since(begun) / 2))
}
