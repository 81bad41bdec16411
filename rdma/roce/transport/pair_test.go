package transport

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/unifiedd/unifiedd/rdma"
)

// options of a pair of queue pairs.
type options struct {
	transport rdma.Transport
	depth     int
	loans     int
	inline    int
	fresh     bool
	mtu       rdma.MTU
	psn       uint32 // the first of both
	quiet     bool   // not every request is signaled
	shared    *ReceiveQueue
	tweak     func(*rdma.Attributes)
}

// pair makes a connected queue pair on each end, ready to send.
func (w *world) pair(o options) (a, b *QueuePair) {
	if o.depth == 0 {
		o.depth = 16
	}
	if o.transport == 0 {
		o.transport = rdma.RC
	}
	if o.mtu == 0 {
		o.mtu = rdma.MTU1024
	}
	var qs [2]*QueuePair
	for i, e := range w.ends {
		c := QueuePairConfig{Domain: testDomain, SendCQ: e.cq, ReceiveCQ: e.cq, FreshReads: o.fresh}
		c.Loans, c.Transport, c.SendDepth, c.RecvDepth, c.SendSGEs, c.RecvSGEs = o.loans, o.transport, o.depth, o.depth, 4, 4
		c.SignalAll, c.InlineBytes = !o.quiet, o.inline
		if i == 1 {
			c.Shared = o.shared
		}
		var err error
		qs[i], err = e.NewQueuePair(c)
		must(w.t, err)
	}
	for i := range qs {
		w.connect(qs[i], w.ends[1-i].gid, qs[1-i].Number(), o)
	}
	return qs[0], qs[1]
}

// connect takes a queue pair to RTS.
func (w *world) connect(q *QueuePair, peer rdma.GID, number uint32, o options) {
	w.t.Helper()
	a := rdma.Attributes{Port: 1, QKey: 0x1111, Access: rdma.Remote, PathMTU: o.mtu, RemoteQPN: number, Address: rdma.Address{GID: peer}, ReceivePSN: o.psn,
		SendPSN: o.psn, MaxReads: 4, MaxRemoteReads: 4, Timeout: 8, Retries: 7, RNRRetries: 7, MinRNRTimer: 1}
	if o.tweak != nil {
		o.tweak(&a)
	}
	for _, s := range ladder(q.config.Transport) {
		a.State = s.state
		must(w.t, q.Modify(a, s.given|rdma.MaskState, 7))
	}
}

type rung struct {
	state rdma.State
	given rdma.Mask
}

// ladder returns the steps that take a queue pair to RTS.
func ladder(t rdma.Transport) []rung {
	switch t {
	case rdma.UD:
		return []rung{{rdma.Init, rdma.MaskPKeyIndex | rdma.MaskPort | rdma.MaskQKey}, {rdma.ReadyToReceive, 0}, {rdma.ReadyToSend, rdma.MaskSendPSN}}
	case rdma.UC:
		return []rung{{rdma.Init, rdma.MaskPKeyIndex | rdma.MaskPort | rdma.MaskAccess},
			{rdma.ReadyToReceive, rdma.MaskAddress | rdma.MaskPathMTU | rdma.MaskRemoteQPN | rdma.MaskReceivePSN}, {rdma.ReadyToSend, rdma.MaskSendPSN}}
	}
	return []rung{{rdma.Init, rdma.MaskPKeyIndex | rdma.MaskPort | rdma.MaskAccess},
		{rdma.ReadyToReceive, rdma.MaskAddress | rdma.MaskPathMTU | rdma.MaskRemoteQPN | rdma.MaskReceivePSN | rdma.MaskMaxRemoteReads | rdma.MaskMinRNRTimer},
		{rdma.ReadyToSend, rdma.MaskTimeout | rdma.MaskRetries | rdma.MaskRNRRetries | rdma.MaskSendPSN | rdma.MaskMaxReads}}
}

// send posts one request with its elements.
func send(t tb, q *QueuePair, r rdma.SendRequest, sges ...rdma.SGE) {
	t.Helper()
	r.SGEs = uint32(len(sges))
	if _, err := q.PostSend([]rdma.SendRequest{r}, sges); err != nil {
		t.Fatal(err)
	}
}

func receiveInto(t tb, q *QueuePair, id uint64, sges ...rdma.SGE) {
	t.Helper()
	if _, err := q.PostReceive([]rdma.ReceiveRequest{{ID: id, SGEs: uint32(len(sges))}}, sges); err != nil {
		t.Fatal(err)
	}
}

// want compares the completions at an end with the expected ones, and discards them.
func (e *end) want(t tb, wanted ...string) {
	t.Helper()
	var got []string
	for i := range e.done {
		got = append(got, show(&e.done[i]))
	}
	e.done = e.done[:0]
	if fmt.Sprint(got) != fmt.Sprint(wanted) {
		t.Errorf("end %d completed %q, want %q", e.index, got, wanted)
	}
}

// show describes a completion: its ID, and its status or its valid fields.
func show(c *rdma.WorkCompletion) string {
	switch {
	case c.Status != rdma.Success:
		return fmt.Sprintf("%d %v", c.ID, c.Status)
	case c.Kind >= rdma.Received:
		s := fmt.Sprintf("%d %v %d", c.ID, c.Kind, c.Length)
		if c.Flags&rdma.HasImmediate != 0 {
			s += fmt.Sprintf(" imm %x", binary.BigEndian.Uint32(immediateOf(c)))
		}
		return s
	}
	return fmt.Sprintf("%d %v", c.ID, c.Kind)
}

func immediateOf(c *rdma.WorkCompletion) []byte {
	b := c.Immediate()
	return b[:]
}

func same(t tb, what string, got, want []byte) {
	t.Helper()
	if !bytes.Equal(got, want) {
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("%s: byte %d of %d differs: %#x, want %#x", what, i, len(want), got[i], want[i])
				return
			}
		}
	}
}
