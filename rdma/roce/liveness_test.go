package roce

import (
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma"
)

// TestPostWhileOthersLook: posted requests complete while another thread holds the device's lock
// most of the time to read counters. The holder of the lock does the work that the poster leaves.
func TestPostWhileOthersLook(t *testing.T) {
	g := newRig(t, rigOptions{})
	a, b := g.connected(config(rdma.RC), rdma.MTU1024)
	stop := make(chan struct{})
	var looking sync.WaitGroup
	defer looking.Wait()
	defer close(stop)
	looking.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				a.dev.Counters()
			}
		}
	})
	for i := range uint64(300) {
		g.must(a.cq.Arm(false))
		a.send(rdma.SendRequest{ID: i, Op: rdma.Write, RemoteAddr: b.base, RKey: b.memory.RKey()}, a.sge(0, 64))
		readable(t, a.cq.FD())
		if _, err := a.cq.Acknowledge(); err != nil {
			t.Fatal(err)
		}
		a.want(i, rdma.WriteDone, rdma.Success)
	}
}

// TestNoRoomInTheKernel: if the kernel has no room for all packets, the rest leave with a later
// system call, without a timeout.
func TestNoRoomInTheKernel(t *testing.T) {
	g := newRig(t, rigOptions{})
	g.timeout = 0 // no timeout
	// GRO gives the interface a NAPI poll, which can run in a thread.
	g.pair.B.Run(t, "ethtool", "-K", g.pair.B.Ifname, "gro", "on")
	g.pair.B.Run(t, "unshare", "--mount", "sh", "-c", "mount -t sysfs none /sys && echo 1 >/sys/class/net/"+g.pair.B.Ifname+"/threaded")
	a, b := g.connected(config(rdma.RC), rdma.MTU1024)
	g.must(unix.SetsockoptInt(a.dev.ports[0].FD(), unix.SOL_SOCKET, unix.SO_SNDBUF, 1))
	const size = 256 << 10
	want := a.fill(0, size, 3)
	for i := range uint64(8) {
		a.send(rdma.SendRequest{ID: i, Op: rdma.Write, RemoteAddr: b.base, RKey: b.memory.RKey()}, a.sge(0, size))
		a.want(i, rdma.WriteDone, rdma.Success)
	}
	if string(b.at(0, size)) != string(want) {
		t.Error("the memory differs")
	}
}

// TestAway: if no thread drives the device for longer than a timeout, an ACK that arrived in time
// behind many packets still counts as in time.
func TestAway(t *testing.T) {
	g := newRig(t, rigOptions{})
	g.timeout = 8 // 1 ms
	a, b := g.connected(config(rdma.RC), rdma.MTU1024)
	c := config(rdma.UD)
	c.SendDepth = 256
	noise := b.newEnd(c)
	g.must(noise.lead(rdma.Attributes{Port: 1, QKey: qkey}))
	to := noise.handle(a.side)
	b.dev.lock.Lock()
	a.dev.lock.Lock()
	a.send(rdma.SendRequest{ID: 1, Op: rdma.Write, RemoteAddr: b.base, RKey: b.memory.RKey()}, a.sge(0, 64))
	a.dev.do(all)
	for i := range uint64(200) {
		noise.send(rdma.SendRequest{ID: i, Op: rdma.Send, Handle: to.ID(), RemoteQPN: 0x999}, b.sge(0, 64))
	}
	b.dev.do(posting)
	b.dev.do(all)
	b.dev.unlock()
	testenv.Wait(t, 10*time.Second, "the packets to come", func() bool {
		s, err := a.dev.ports[0].Stats()
		return err == nil && s.Waiting == 201
	})
	time.Sleep(10 * time.Millisecond)
	a.dev.unlock()
	a.want(1, rdma.WriteDone, rdma.Success)
	if n, came := count(a.dev, "timeouts"), count(a.dev, "dropped_unknown_queue_pair"); n != 0 || came != 200 {
		t.Errorf("%d timeouts, behind %d of 200 packets", n, came)
	}
}
