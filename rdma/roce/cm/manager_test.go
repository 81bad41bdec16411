package cm

import (
	"bytes"
	"errors"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/cm"
)

// TestConnect: two ends connect over IPv4 and IPv6, get each other's private data and addresses,
// exchange messages, and notice the end.
func TestConnect(t *testing.T) {
	for name, ipv6 := range map[string]bool{"IPv4": false, "IPv6": true} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, ipv6, Config{})
			if d := r.sides[0].dev.Capabilities().LocalAcknowledgement; d != ackDelay {
				t.Errorf("the device's acknowledgements take %d, not %d", d, ackDelay)
			}
			x, y := r.sides[0].newEnd(), r.sides[1].newEnd()
			r.pairs(x, y)
			r.pairs(r.sides[1].newEnd(), r.sides[0].newEnd())
			r.pairs(r.sides[0].newEnd(), r.sides[0].newEnd())
		})
	}
}

// pairs connects two ends, exchanges messages, and ends the connection.
func (r *rig) pairs(x, y *end) {
	r.Helper()
	l := y.listen(0)
	answer := y.answer(l, y.accept("welcome"))
	a, err := x.connect(y.ip, "hello")
	if err != nil {
		r.Fatalf("%v\n%s\n%s", err, x.show(), y.show())
	}
	b := <-answer
	if b.err != nil {
		r.Fatal(b.err)
	}
	heard(r.T, a.Private(), "welcome", cm.MostToAccept)
	heard(r.T, b.conn.Private(), "hello", cm.MostToConnect)
	if p, q := a.Address(), b.conn.Address(); p.Device != x.dev.Name() || p.Local != q.Remote || p.Remote != q.Local || p.Remote.Port() != port || p.Remote.Addr() != y.ip {
		r.Errorf("%v, and at the other end %v", p, q)
	}
	copy(x.region.At(x.base+8192, 64), "there")
	x.send(rdma.SendRequest{Op: rdma.Send}, 8192)
	x.want(rdma.Success)
	y.want(rdma.Success)
	if got := y.region.At(y.base, 5); string(got) != "there" {
		r.Errorf("%q came", got)
	}
	x.send(rdma.SendRequest{Op: rdma.Read, RemoteAddr: y.base, RKey: y.memory.RKey()}, 12288)
	x.want(rdma.Success)
	r.ends(x, y, a, b.conn)
	testenv.Check(r, l.Close())
}

// ends checks the end of a connection: one side closes, the other notices, and outstanding requests
// are flushed.
func (r *rig) ends(x, y *end, a, b cm.Conn) {
	r.Helper()
	if a.Err() != nil || b.Err() != nil {
		r.Errorf("%v, %v while it stands", a.Err(), b.Err())
	}
	y.receive(0)
	testenv.Check(r, a.Close())
	if err := over(r, b); !errors.Is(err, cm.ErrDisconnected) {
		r.Errorf("the peer's end is %v", err)
	}
	if err := a.Err(); !errors.Is(err, cm.ErrClosed) {
		r.Errorf("our own end is %v", err)
	}
	y.want(rdma.WorkFlushed)
	x.want(rdma.WorkFlushed)
	testenv.Check(r, errors.Join(b.Close(), b.Close(), a.Close()))
}

// heard checks private data, which arrives followed by zeros.
func heard(t *testing.T, got []byte, want string, most int) {
	t.Helper()
	if len(got) != most || string(bytes.TrimRight(got, "\x00")) != want {
		t.Errorf("%d bytes %q came, not %q in %d", len(got), got, want, most)
	}
}
