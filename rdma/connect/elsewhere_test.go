package connect

import (
	"errors"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma"
)

// TestElsewhere: with Elsewhere the handshake exchanges offers and does not change the queue pairs.
func TestElsewhere(t *testing.T) {
	var log journal
	l := listen(t, Config{})
	p := Parameters{Transport: rdma.RC, QPN: 17, PSN: 1, GID: rdma.GID{15: 1}, MTU: rdma.MTU1024}
	client, server := end(&log, "client", p), end(&log, "server", p)
	client.Elsewhere, server.Elsewhere = true, true
	done := serve(t, l, server)
	a, err := Dial(t.Context(), l.Addr().String(), client, Config{})
	b := <-done
	err = errors.Join(err, b.err)
	testenv.Must(t, err)
	if len(log.lines) != 0 || string(a.Remote().Hello) != "server" || string(b.conn.Remote().Hello) != "client" {
		t.Errorf("%q, and the server says %q", log.lines, a.Remote().Hello)
	}
	testenv.Check(t, errors.Join(a.Close(), b.conn.Close()))
}
