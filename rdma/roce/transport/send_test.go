package transport

import (
	"fmt"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/rdma"
)

// sizes are message lengths around the limits of packets.
var sizes = []int{0, 1, 3, 64, 255, 256, 257, 1023, 1024, 1025, 4095, 4096, 4097, 65536, 200001}

func TestSend(t *testing.T) {
	for _, mtu := range []rdma.MTU{rdma.MTU256, rdma.MTU1024, rdma.MTU4096} {
		t.Run(fmt.Sprint(mtu), func(t *testing.T) {
			w := newWorld(t, 1, Config{MTU: mtu})
			a, b := w.pair(options{mtu: mtu, psn: 0xfffff0})
			for i, n := range sizes {
				w.sendOne(a, b, uint64(i+1), n)
			}
			for _, e := range w.ends {
				if e.Count(Retries)+e.Count(RNRReceived)+e.Count(OutOfSequence)+e.Count(DuplicateRequests) != 0 {
					t.Errorf("end %d: a clean link has retries", e.index)
				}
			}
		})
	}
}

// sendOne sends a message of n bytes from three elements into two.
func (w *world) sendOne(a, b *QueuePair, id uint64, n int) {
	t, from, to := w.t, w.ends[0], w.ends[1]
	want := from.fill(0, n, byte(id))
	clear(to.memory(0, 300000))
	x, y := n/3, n/2
	receiveInto(t, b, id+100, to.sge(0, y), to.sge(250000, n-y+8))
	send(t, a, rdma.SendRequest{ID: id, Op: rdma.SendImmediate, Immediate: [4]byte{0, 0, 1, 2}}, from.sge(0, x), from.sge(x, 0), from.sge(x, n-x))
	w.run(20 * time.Millisecond)
	from.want(t, fmt.Sprintf("%d SEND", id))
	to.want(t, fmt.Sprintf("%d receive %d imm 102", id+100, n))
	same(t, fmt.Sprint("message of ", n), append(to.memory(0, y), to.memory(250000, n-y)...), want)
}
