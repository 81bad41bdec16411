//go:build verbs && cgo

package verbs

import (
	"net"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma"
)

// TestSilence: if the peer or the link goes silent, outstanding requests return within the time
// given by Timeout and Retries.
func TestSilence(t *testing.T) {
	labenv.Guest(t)
	b := newBench(t, everything)
	wire(t, "virtio1")
	b.run(map[string]func(*bench){"peer": silentPeer, "peer under READ": silentUnderRead, "link down": linkDown, "link down, peer elsewhere": linkDownAway,
		"link up again": linkUp,
		"peer closed":   closedPeer})
}

// silent makes a queue pair whose peer is on the wire and does not answer.
func (b *bench) silent() *end {
	b.t.Helper()
	link, err := netlink.LinkByName(card)
	testenv.Must(b.t, err)
	n := &netlink.Neigh{LinkIndex: link.Attrs().Index, IP: net.IP(elsewhere.AsSlice()), State: netlink.NUD_PERMANENT,
		HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 9}}
	testenv.Must(b.t, netlink.NeighSet(n))
	b.t.Cleanup(func() { _ = netlink.NeighDel(n) })
	x := b.end(config(rdma.RC))
	x.to = rdma.GIDOf(elsewhere)
	x.connect(0x11)
	return x
}

// outstanding posts three requests and two receives, and checks that the first request fails with
// the status and all others are flushed.
func (x *end) outstanding(op rdma.Op, want rdma.Status) {
	x.t.Helper()
	x.receive(10, x.b.sge(destination, 64))
	x.receive(11, x.b.sge(destination, 64))
	for id := range uint64(3) {
		x.send(rdma.SendRequest{ID: id, Op: op, RKey: x.b.memory.RKey(), RemoteAddr: x.b.memory.Addr() + destination}, x.b.sge(source, 8))
	}
	x.lost(want)
}

// lost checks the returned sends and receives, each in order.
func (x *end) lost(want rdma.Status) {
	x.t.Helper()
	begin := time.Now()
	sends, receives := uint64(0), uint64(10)
	for range 5 {
		c := x.completion()
		status := rdma.WorkFlushed
		if c.ID == 0 {
			status = want
			x.t.Logf("%v after %v", c.Status, time.Since(begin).Round(time.Millisecond))
		}
		next := &sends
		if c.ID >= 10 {
			next = &receives
		}
		if c.ID != *next || c.Status != status {
			x.t.Errorf("completion of %d with %v, want %d with %v", c.ID, c.Status, *next, status)
		}
		*next++
	}
	x.state(rdma.Error)
}

func silentPeer(b *bench)      { b.silent().outstanding(rdma.Send, rdma.RetryExceeded) }
func silentUnderRead(b *bench) { b.silent().outstanding(rdma.Read, rdma.RetryExceeded) }

// linkDown: if the card is down, Soft-RoCE does not wait, but fails requests at once as local
// errors. A side that only receives notices nothing.
func linkDown(b *bench) {
	x, y := b.pair(config(rdma.RC))
	x.transfer(y, rdma.Send, 4096)
	labenv.SetLink(b.t, card, false)
	defer labenv.SetLink(b.t, card, true)
	x.outstanding(rdma.Write, b.local(rdma.LocalQPOperation))
	y.state(rdma.ReadyToSend)
	y.quiet()
}

func linkDownAway(b *bench) {
	x := b.silent()
	labenv.SetLink(b.t, card, false)
	defer labenv.SetLink(b.t, card, true)
	x.outstanding(rdma.Write, b.local(rdma.LocalQPOperation))
}

// linkUp: once the card is up again, queue pairs that had nothing to send still work, and those
// that failed work after they are connected again.
func linkUp(b *bench) {
	x, y := b.pair(config(rdma.RC))
	other, of := b.pair(config(rdma.RC))
	labenv.SetLink(b.t, card, false)
	x.send(rdma.SendRequest{ID: 1, Op: rdma.Send, Flags: rdma.Signaled}, b.sge(source, 8))
	x.want(1, b.local(rdma.LocalQPOperation))
	labenv.SetLink(b.t, card, true)
	other.transfer(of, rdma.Send, 4096)
	for _, e := range []*end{x, y} {
		e.modify(rdma.Attributes{State: rdma.Reset}, 0)
	}
	x.connect(y.qp.QPN())
	y.connect(x.qp.QPN())
	x.transfer(y, rdma.Send, 4096)
}

// closedPeer: the peer closes its queue pair while WRITEs and READs are outstanding. Completed ones
// stay successful, the next one has the cause, and the others are flushed. Another pair still
// works.
func closedPeer(b *bench) {
	x, y := b.pair(config(rdma.RC))
	other, of := b.pair(config(rdma.RC))
	gone := make(chan error, 1)
	go func() {
		time.Sleep(20 * time.Millisecond)
		gone <- y.qp.Close()
	}()
	w := underWay{end: x}
	for more := 4; more > 0; { // four more after it is closed
		select {
		case err := <-gone:
			testenv.Must(b.t, err)
			gone = nil
		default:
		}
		if w.post(); gone == nil {
			more--
		}
	}
	for w.done < w.posted {
		w.take()
	}
	if w.status != rdma.WorkFlushed {
		b.t.Error("no request failed")
	}
	other.transfer(of, rdma.Write, 4096)
}

// underWay holds up to 16 outstanding WRITEs and READs. One of them must fail, and those after it
// must be flushed.
type underWay struct {
	*end
	posted, done uint64
	status       rdma.Status // expected for the next one
}

func (w *underWay) post() {
	w.t.Helper()
	if w.posted-w.done == 16 {
		w.take()
	}
	op := []rdma.Op{rdma.Write, rdma.Read}[w.posted%2]
	w.send(rdma.SendRequest{ID: w.posted, Op: op, Flags: rdma.Signaled, RKey: w.b.memory.RKey(), RemoteAddr: w.b.memory.Addr() + destination}, w.b.sge(source, 1<<20))
	w.posted++
}

func (w *underWay) take() {
	w.t.Helper()
	c := w.completion()
	switch {
	case w.status == rdma.Success && c.Status == rdma.RetryExceeded:
		w.status = rdma.WorkFlushed // expected for those after it
	case c.Status != w.status:
		w.t.Errorf("request %d: %v, want %v", w.done, c.Status, w.status)
	}
	if c.ID != w.done {
		w.t.Errorf("completion of %d, want %d", c.ID, w.done)
	}
	w.done++
}
