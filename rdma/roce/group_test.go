package roce

import (
	"bytes"
	"net/netip"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma"
)

// TestGroups: a datagram to a multicast group reaches the queue pairs that are attached to it, and
// none after Detach.
func TestGroups(t *testing.T) {
	for name, c := range map[string]struct {
		rigOptions
		group string
	}{"IPv4": {rigOptions{}, "239.7.7.7"}, "IPv6": {rigOptions{ipv6: true}, "ff15::77"}} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, c.rigOptions)
			a, b := g.connected(config(rdma.UD), 0)
			_, other := g.connected(config(rdma.UD), 0)
			group := rdma.GIDOf(netip.MustParseAddr(c.group))
			for _, e := range []*end{b, other} {
				g.must(e.qp.(rdma.Member).Attach(group))
				g.must(e.qp.(rdma.Member).Attach(group))
			}
			h := testenv.Opened(g, func() (rdma.AddressHandle, error) {
				return a.pd.NewAddressHandle(rdma.Address{GID: group, GIDIndex: uint16(a.gid.Index), Port: 1})
			})
			r := rdma.SendRequest{ID: 1, Op: rdma.Send, RemoteQPN: 0xffffff, RemoteQKey: qkey, Handle: h.ID()}
			want := a.fill(0, 300, 5)
			for i, e := range []*end{b, other} {
				e.receive(2, e.sge(uint64(4096*(i+1)), 400))
			}
			a.send(r, a.sge(0, 300))
			for i, e := range []*end{b, other} {
				e.want(2, rdma.Received, rdma.Success)
				if !bytes.Equal(e.at(uint64(4096*(i+1)+rdma.GRHBytes), 300), want) {
					t.Errorf("what came to member %d differs", i)
				}
			}
			a.want(1, rdma.SendDone, rdma.Success)
			for _, e := range []*end{b, other} {
				g.must(e.qp.(rdma.Member).Detach(group))
				e.receive(3, e.sge(0, 400))
			}
			a.send(r, a.sge(0, 300))
			a.want(1, rdma.SendDone, rdma.Success)
			time.Sleep(10 * time.Millisecond)
			if n, err := b.cq.Poll(make([]rdma.WorkCompletion, 1)); n != 0 || err != nil {
				t.Errorf("%d datagrams came to a group that was left, %v", n, err)
			}
			if err := a.qp.(rdma.Member).Attach(b.gid.GID); err == nil {
				t.Error("the address of a host is a group")
			}
		})
	}
}
