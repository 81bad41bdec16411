package roce

import (
	"slices"
	"testing"

	"github.com/unifiedd/unifiedd/rdma"
)

// TestBatch: requests posted between Begin and End leave at End, and none before.
func TestBatch(t *testing.T) {
	g := newRig(t, rigOptions{mtu: 4200})
	var from, to [3]*end
	var said [3][]byte
	for i := range uint64(len(from)) {
		from[i], to[i] = g.connected(config(rdma.RC), rdma.MTU4096)
		said[i] = from[i].fill(64*i, 64, byte(i))
		to[i].receive(1, to[i].sge(64*i, 64))
	}
	d := g.sides[0].dev
	sent := func() uint64 {
		all := d.Counters()
		return all[slices.IndexFunc(all, func(c Counter) bool { return c.Name == "packets_sent" })].Value
	}
	before := sent()
	d.Begin()
	for i := range uint64(len(from)) {
		from[i].send(rdma.SendRequest{ID: 2, Op: rdma.Send}, from[i].sge(64*i, 64))
	}
	if n := sent() - before; n != 0 {
		t.Errorf("%d packets left before End", n)
	}
	d.End()
	if n := sent() - before; n != 3 {
		t.Errorf("%d packets have left at End, and not 3", n)
	}
	for i := range uint64(len(from)) {
		to[i].want(1, rdma.Received, rdma.Success)
		from[i].want(2, rdma.SendDone, rdma.Success)
		if string(to[i].at(64*i, 64)) != string(said[i]) {
			t.Errorf("message %d came as another", i)
		}
	}
}
