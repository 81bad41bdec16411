package roce

import (
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/roce/wire"
)

// TestSetAside: the device processes a message before the ACK in front of it, and then the ACK if
// its ICRC is right. Both give completions, and their frames leave the ring.
func TestSetAside(t *testing.T) {
	g := newRig(t, rigOptions{})
	g.timeout = 20 // 4 s: no packet is sent twice
	a, b := g.connected(config(rdma.RC), rdma.MTU1024)
	for _, s := range g.sides {
		s.dev.progressLoop.stop() // from here only the test drives the devices
	}
	a.receive(0, a.sge(0, 64))
	b.send(rdma.SendRequest{ID: 4, Op: rdma.Send}, b.sge(0, 64)) // resolves the path
	a.want(0, rdma.Received, rdma.Success)
	a.dev.progress(posting)
	b.want(4, rdma.SendDone, rdma.Success)
	m := &a.dev.datapath
	step := func(f func()) {
		a.dev.lock.Lock()
		defer a.dev.lock.Unlock()
		f()
		a.dev.publish(polling)
	}
	empty := func() { // waits for late packets
		if c, err := a.cq.Spin(make([]rdma.WorkCompletion, 1), time.Millisecond); c != 0 || err != nil {
			t.Fatalf("%d completions, %v", c, err)
		}
	}
	const rounds = 3 * maxLooked
	for i := range rounds {
		empty()
		b.receive(1, b.sge(0, 64))
		a.receive(2, a.sge(64, 64))
		a.send(rdma.SendRequest{ID: 3, Op: rdma.Send}, a.sge(0, 64))
		b.want(1, rdma.Received, rdma.Success)
		b.dev.locked(b.dev.datapath.engine.Release) // sends the delayed ACK
		b.send(rdma.SendRequest{ID: 4, Op: rdma.Send}, b.sge(0, 64))
		testenv.Wait(t, 10*time.Second, "an acknowledgement and a message", m.several)
		broken := i == rounds-1
		if f, _ := m.queues[0].port.Peek(0); broken {
			m.data[f.Addr+uint64(f.Len)-1] ^= 1
		}
		step(func() {
			if !m.fastReceive() || !m.hasDeferred {
				t.Fatalf("message %d: an acknowledgement set aside: %v", i, m.hasDeferred)
			}
		})
		var c [2]rdma.WorkCompletion
		if n, err := a.cq.Poll(c[:]); n != 1 || err != nil || c[0].ID != 2 || c[0].Kind != rdma.Received {
			t.Fatalf("message %d: %d completions, %v, %+v", i, n, err, c[0])
		}
		step(m.finishReceive)
		switch n, err := a.cq.Poll(c[:]); {
		case err != nil:
			t.Fatal(err)
		case broken && (n != 0 || m.counts.malformed[wire.ICRCWrong] != 1):
			t.Errorf("a broken acknowledgement: %d completions, %v", n, m.counts.malformed)
		case !broken && (n != 1 || c[0].ID != 3 || c[0].Kind != rdma.SendDone):
			t.Fatalf("message %d: after the acknowledgement %d completions, %+v", i, n, c[0])
		}
		a.dev.locked(m.engine.Release)
		if m.queues[0].looked > 0 {
			t.Fatalf("%d frames stay in the ring", m.queues[0].looked)
		}
		b.want(4, rdma.SendDone, rdma.Success)
	}
}
