package roce

import (
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/rdma"
)

// TestSpinPost: SpinPost sends an answer in the call that receives the message: at once if it is
// one packet, otherwise as PostSend does. Message and answer arrive intact. SpinPost posts nothing
// if no message arrives or a completion failed.
func TestSpinPost(t *testing.T) {
	g := newRig(t, rigOptions{mtu: 4200})
	a, b := g.connected(config(rdma.RC), rdma.MTU4096)
	got := make([]rdma.WorkCompletion, 4)
	post := func(limit time.Duration, size int, requests ...rdma.SendRequest) (completed, posted int) {
		completed, posted, err := rdma.SpinPost(b.qp, b.cq, got, limit, requests, []rdma.SGE{b.sge(1<<18, size)})
		g.must(err)
		return completed, posted
	}
	answer := rdma.SendRequest{ID: 9, Op: rdma.Send, SGEs: 1}
	if n, posted := post(300*time.Microsecond, 8, answer); n != 0 || posted != 0 {
		t.Errorf("nothing came, and %d completed and %d were posted", n, posted)
	}
	for i, size := range []int{64, 0, 63, 1000, 4096, 9000, 64} {
		question, said := a.fill(0, size, byte(i)), b.fill(1<<18, size, byte(i+50))
		b.receive(1, b.sge(0, 1<<16))
		a.receive(2, a.sge(1<<18, 1<<16))
		a.send(rdma.SendRequest{ID: 3, Op: rdma.Send}, a.sge(0, size))
		for n, posted := 0, 0; n == 0; {
			if n, posted = post(time.Second, size, answer); n != 1 || posted != 1 || int(got[0].Length) != size || got[0].Kind != rdma.Received {
				t.Fatalf("%d bytes: %d completed, %d posted, %+v", size, n, posted, got[0])
			}
		}
		for range 2 {
			if c := a.completion(); c.Status != rdma.Success {
				t.Fatalf("%d bytes: %v", size, c.Status)
			}
		}
		if string(b.at(0, size)) != string(question) || string(a.at(1<<18, size)) != string(said) {
			t.Errorf("%d bytes: something else came", size)
		}
		b.want(9, rdma.SendDone, rdma.Success)
	}
	b.receive(1, b.sge(0, 64))
	a.send(rdma.SendRequest{ID: 3, Op: rdma.Send}, a.sge(0, 64))
	if n, posted := post(time.Second, 0); n != 1 || posted != 0 {
		t.Errorf("without an answer: %d completed, %d posted", n, posted)
	}
	a.want(3, rdma.SendDone, rdma.Success)
	b.receive(1, b.sge(0, 64))
	g.must(b.qp.Modify(rdma.Attributes{State: rdma.Error}, rdma.MaskState))
	if n, posted := post(time.Second, 8, answer); n != 1 || posted != 0 || got[0].Status != rdma.WorkFlushed {
		t.Errorf("a failure: %d completed, %d posted, %v", n, posted, got[0].Status)
	}
}

// TestSpinPostTimesOut: a thread in SpinPost also handles deadlines, and gets RetryExceeded if the
// peer is gone.
func TestSpinPostTimesOut(t *testing.T) {
	g := newRig(t, rigOptions{})
	g.timeout = 12 // all timeouts together take half a second
	a, b := g.connected(config(rdma.RC), rdma.MTU1024)
	g.pair.B.Run(t, "ip", "link", "set", g.pair.B.Ifname, "down")
	a.dev.progressLoop.stop() // from here only the test drives the device
	a.send(rdma.SendRequest{ID: 1, Op: rdma.Write, RemoteAddr: b.base, RKey: b.memory.RKey()}, a.sge(0, 8))
	got := make([]rdma.WorkCompletion, 4)
	again := rdma.SendRequest{ID: 2, Op: rdma.Write, RemoteAddr: b.base, RKey: b.memory.RKey(), SGEs: 1}
	n, posted, err := rdma.SpinPost(a.qp, a.cq, got, 10*time.Second, []rdma.SendRequest{again}, []rdma.SGE{a.sge(0, 8)})
	if err != nil || n != 1 || posted != 0 || got[0].Status != rdma.RetryExceeded {
		t.Errorf("%d completed, %d posted, %v: %v", n, posted, got[0].Status, err)
	}
}
