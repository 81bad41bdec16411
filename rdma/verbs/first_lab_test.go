//go:build lab

package verbs

import (
	"testing"

	"github.com/unifiedd/unifiedd/rdma"
)

// TestSend: a message goes from one place of the region to another.
func TestSend(t *testing.T) {
	b := newBench(t, 2<<20)
	x, y := b.pair(config(rdma.RC))
	copy(b.region.At(0, 5), "hello")
	y.receive(7, b.sge(8192, 4096))
	x.send(rdma.SendRequest{ID: 3, Op: rdma.Send, Flags: rdma.Signaled}, b.sge(0, 5))
	x.want(3, rdma.Success)
	c := y.want(7, rdma.Success)
	if got := string(b.region.At(8192, 5)); got != "hello" || c.Length != 5 {
		t.Errorf("%q, %d bytes", got, c.Length)
	}
}
