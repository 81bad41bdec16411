//go:build verbs && cgo

package cm

import (
	"bytes"
	"errors"
	"testing"

	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/rdma"
)

// TestConnect: two sides connect, get each other's private data and addresses, exchange messages,
// and notice the end.
func TestConnect(t *testing.T) {
	labenv.Guest(t)
	r := newRig(t)
	r.connects()
	if !testing.Short() {
		r.at = here6
		r.connects()
	}
}

// connects connects two sides at the rig's address.
func (r *rig) connects() {
	t := r.t
	t.Helper()
	x, y := r.side(), r.side()
	a, b := r.pair(x, y)
	heard(t, a.Private(), "welcome", MostToAccept)
	heard(t, b.Private(), "hello", MostToConnect)
	if p := a.Address(); p.Device != r.device.Name() || p.Port != 1 || p.Remote.Addr() != r.at || p.Remote.Port() != port || b.Address().Local != p.Remote {
		t.Errorf("%v, and at the other end %v", p, b.Address())
	}
	clear(r.region.At(0, 32768))
	copy(r.region.At(8192, 64), "there")
	x.send(rdma.SendRequest{Op: rdma.Send}, 8192)
	x.want(rdma.Success)
	y.want(rdma.Success)
	copy(r.region.At(8192, 64), "back again")
	y.send(rdma.SendRequest{Op: rdma.Write, RemoteAddr: r.memory.Addr() + 16384, RKey: r.memory.RKey()}, 8192)
	y.want(rdma.Success)
	x.send(rdma.SendRequest{Op: rdma.Read, RemoteAddr: r.memory.Addr() + 16384, RKey: r.memory.RKey()}, 24576)
	x.want(rdma.Success)
	if got := r.region.At(24576, 10); string(got) != "back again" || string(r.region.At(0, 5)) != "there" {
		t.Errorf("%q", got)
	}
	if a.Err() != nil || b.Err() != nil {
		t.Errorf("%v, %v while it stands", a.Err(), b.Err())
	}
	r.ends(x, y, a, b)
}

// ends checks the end of a connection: one side closes, the other notices, and outstanding requests
// are flushed.
func (r *rig) ends(x, y *side, a, b Conn) {
	r.t.Helper()
	y.receive(0)
	closed(r.t, a)
	if err := over(r.t, b); !errors.Is(err, ErrDisconnected) {
		r.t.Errorf("the peer's end is %v", err)
	}
	if err := a.Err(); !errors.Is(err, ErrClosed) || errors.Is(err, ErrDisconnected) {
		r.t.Errorf("our own end is %v", err)
	}
	y.want(rdma.WorkFlushed)
	x.want(rdma.WorkFlushed)
	if s, err := y.qp.State(); s != rdma.Error || err != nil {
		r.t.Errorf("%v, %v", s, err)
	}
	closed(r.t, b)
}

// heard checks private data, which arrives followed by zeros.
func heard(t *testing.T, got []byte, want string, most int) {
	t.Helper()
	if len(got) != most || string(bytes.TrimRight(got, "\x00")) != want {
		t.Errorf("%d bytes %q came, not %q in %d", len(got), got, want, most)
	}
}
