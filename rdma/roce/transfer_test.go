package roce

import (
	"bytes"
	"testing"

	"github.com/unifiedd/unifiedd/rdma"
)

// TestSend has the first message arrive.
func TestSend(t *testing.T) {
	g := newRig(t, rigOptions{})
	a, b := g.connected(config(rdma.RC), rdma.MTU1024)
	for i := range uint64(5) {
		want := a.fill(0, 64, byte(i))
		b.receive(i, b.sge(4096, 64))
		a.send(rdma.SendRequest{ID: 100 + i, Op: rdma.Send}, a.sge(0, 64))
		b.want(i, rdma.Received, rdma.Success)
		if !bytes.Equal(b.at(4096, 64), want) {
			t.Error("what came differs")
		}
		a.want(100+i, rdma.SendDone, rdma.Success)
	}
	t.Log(a.dev.show())
	t.Log(b.dev.show())
}
