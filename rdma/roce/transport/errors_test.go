package transport

import (
	"fmt"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/roce/wire"
)

// failure is one request that fails, posted between others.
type failure struct {
	name    string
	tweak   func(*rdma.Attributes) // of both ends
	receive bool                   // the peer posts a receive of 100 bytes
	request func(w *world) (rdma.SendRequest, []rdma.SGE)
	status  rdma.Status // of the request
	there   string      // of the peer's receive; "": flushed unused; "-": the peer sees no error
	event   rdma.EventKind
}

func op(o rdma.Op, n int, change func(*rdma.SendRequest, *end)) func(*world) (rdma.SendRequest, []rdma.SGE) {
	return func(w *world) (rdma.SendRequest, []rdma.SGE) {
		r := rdma.SendRequest{Op: o, RemoteAddr: w.ends[1].base, RKey: w.ends[1].key}
		if change != nil {
			change(&r, w.ends[1])
		}
		return r, []rdma.SGE{w.ends[0].sge(0, n)}
	}
}

func badKey(r *rdma.SendRequest, _ *end)  { r.RKey += 1 << 8 }
func badLast(r *rdma.SendRequest, e *end) { r.RemoteAddr += extentSize - 99 }
func wraps(r *rdma.SendRequest, _ *end)   { r.RemoteAddr = ^uint64(0) - 50 }

func noAccess(a *rdma.Attributes) { a.Access = 0 }

func localSGE(f func(*world) rdma.SGE) func(*world) (rdma.SendRequest, []rdma.SGE) {
	return func(w *world) (rdma.SendRequest, []rdma.SGE) {
		return rdma.SendRequest{Op: rdma.Send}, []rdma.SGE{f(w)}
	}
}

var failures = []failure{
	{"WRITE under a wrong key", nil, false, op(rdma.Write, 100, badKey), rdma.RemoteAccess, "", rdma.QueuePairAccess},
	{"WRITE under key 0", nil, false, op(rdma.Write, 100, func(r *rdma.SendRequest, _ *end) { r.RKey = 0 }), rdma.RemoteAccess, "", rdma.QueuePairAccess},
	{"WRITE beyond the end", nil, false, op(rdma.Write, 100, badLast), rdma.RemoteAccess, "", rdma.QueuePairAccess},
	{"WRITE around the address space", nil, false, op(rdma.Write, 100, wraps), rdma.RemoteAccess, "", rdma.QueuePairAccess},
	{"WRITE in front", nil, false, op(rdma.Write, 100, func(r *rdma.SendRequest, _ *end) { r.RemoteAddr-- }), rdma.RemoteAccess, "", rdma.QueuePairAccess},
	{"READ under a wrong key", nil, false, op(rdma.Read, 100, badKey), rdma.RemoteAccess, "", rdma.QueuePairAccess},
	{"READ beyond the end", nil, false, op(rdma.Read, 5000, badLast), rdma.RemoteAccess, "", rdma.QueuePairAccess},
	{"atomic under a wrong key", nil, false, op(rdma.FetchAdd, 8, badKey), rdma.RemoteAccess, "", rdma.QueuePairAccess},
	{"WRITE that is not allowed", noAccess, false, op(rdma.Write, 100, nil), rdma.RemoteInvalidRequest, "", rdma.QueuePairRequest},
	{"READ that is not allowed", noAccess, false, op(rdma.Read, 100, nil), rdma.RemoteInvalidRequest, "", rdma.QueuePairRequest},
	{"atomic that is not allowed", noAccess, false, op(rdma.CompareSwap, 8, nil), rdma.RemoteInvalidRequest, "", rdma.QueuePairRequest},
	{"READ where none may be outstanding", func(a *rdma.Attributes) { a.MaxRemoteReads = 0 }, false, op(rdma.Read, 100, nil), rdma.RemoteInvalidRequest, "", rdma.QueuePairRequest},
	{"READ without max_rd_atomic", func(a *rdma.Attributes) { a.MaxReads = 0 }, false, op(rdma.Read, 100, nil), rdma.LocalQPOperation, "-", 0},
	{"SEND too long", nil, true, op(rdma.Send, 101, nil), rdma.RemoteInvalidRequest, "7 IBV_WC_LOC_LEN_ERR", rdma.QueuePairRequest},
	{"SEND much too long", nil, true, op(rdma.Send, 10001, nil), rdma.RemoteInvalidRequest, "7 IBV_WC_LOC_LEN_ERR", rdma.QueuePairRequest},
	{"WRITE with immediate under a wrong key", nil, true, op(rdma.WriteImmediate, 100, badKey), rdma.RemoteAccess, "7 IBV_WC_LOC_ACCESS_ERR", rdma.QueuePairAccess},
	{"SEND that ends a right that is not there", nil, true, op(rdma.SendInvalidate, 100, nil), rdma.RemoteAccess, "7 IBV_WC_LOC_ACCESS_ERR", rdma.QueuePairAccess},
	{"SEND from a wrong key", nil, true, localSGE(func(w *world) rdma.SGE { return rdma.SGE{Addr: w.ends[0].base, Length: 8, LKey: 1} }), rdma.LocalProtection, "-", 0},
	{"SEND from beyond the end", nil, true, localSGE(func(w *world) rdma.SGE { return w.ends[0].sge(extentSize-7, 8) }), rdma.LocalProtection, "-", 0},
	{"local invalidate of a registration", nil, false, func(w *world) (rdma.SendRequest, []rdma.SGE) {
		return rdma.SendRequest{Op: rdma.LocalInvalidate, Immediate: rdma.Invalidate(w.ends[0].key)}, nil
	}, rdma.LocalQPOperation, "-", 0},
}

// TestFailures: each failure ends the queue pair. Requests posted before the failed one succeed;
// those after it are flushed.
func TestFailures(t *testing.T) {
	for _, f := range failures {
		t.Run(f.name, func(t *testing.T) {
			w := newWorld(t, 1, Config{})
			a, b := w.pair(options{tweak: f.tweak})
			w.fail(f, a, b)
		})
	}
}

func (w *world) fail(f failure, a, b *QueuePair) {
	t, from, to := w.t, w.ends[0], w.ends[1]
	same := to.fill(0, extentSize, 1)
	receiveInto(t, b, 6, to.sge(extentSize-100, 100))
	send(t, a, rdma.SendRequest{ID: 1, Op: rdma.Send})
	if f.receive {
		receiveInto(t, b, 7, to.sge(0, 100))
	}
	receiveInto(t, b, 8, to.sge(0, 100))
	r, sges := f.request(w)
	r.ID = 2
	send(t, a, r, sges...)
	send(t, a, rdma.SendRequest{ID: 3, Op: rdma.Write})
	send(t, a, rdma.SendRequest{ID: 4, Op: rdma.Send})
	w.run(time.Second)
	from.want(t, "1 SEND", fmt.Sprint("2 ", f.status), "3 IBV_WC_WR_FLUSH_ERR", "4 IBV_WC_WR_FLUSH_ERR")
	w.checkThere(f, b)
	if a.State() != rdma.Error {
		t.Errorf("the requester is in %v", a.State())
	}
	unchanged(t, to, same)
}

// checkThere checks the responder.
func (w *world) checkThere(f failure, b *QueuePair) {
	t, to := w.t, w.ends[1]
	wanted, state := []string{"6 receive 0"}, rdma.Error
	switch {
	case f.there == "-":
		state = rdma.ReadyToSend
	case f.receive && f.there != "":
		wanted = append(wanted, f.there, "8 IBV_WC_WR_FLUSH_ERR")
	default:
		wanted = append(wanted, "8 IBV_WC_WR_FLUSH_ERR")
	}
	to.want(t, wanted...)
	if b.State() != state {
		t.Errorf("the responder is in %v, want %v", b.State(), state)
	}
	if f.event != 0 && (len(to.got) != 1 || to.got[0] != (rdma.Event{Kind: f.event, QPN: b.Number()})) {
		t.Errorf("events %v, want %v", to.got, f.event)
	}
}

// unchanged checks that the memory has not changed. It skips the receives, which may hold the first
// packets of a message.
func unchanged(t tb, e *end, want []byte) {
	t.Helper()
	same(t, "memory", e.memory(1024, extentSize-1024), want[1024:])
}

// TestReceiveMemory: a SEND to a receive with an invalid key fails at both ends.
func TestReceiveMemory(t *testing.T) {
	w := newWorld(t, 1, Config{})
	a, b := w.pair(options{})
	receiveInto(t, b, 7, rdma.SGE{Addr: w.ends[1].base, Length: 100, LKey: 5})
	send(t, a, rdma.SendRequest{ID: 1, Op: rdma.Send}, w.ends[0].sge(0, 10))
	w.run(time.Second)
	w.ends[0].want(t, "1 IBV_WC_REM_OP_ERR")
	w.ends[1].want(t, "7 IBV_WC_LOC_PROT_ERR")
}

// TestRevoked: a WRITE or READ fails if the registration ends while its packets are in flight.
func TestRevoked(t *testing.T) {
	for _, o := range []rdma.Op{rdma.Write, rdma.Read} {
		t.Run(o.String(), func(t *testing.T) {
			w := newWorld(t, 1, Config{Burst: 4})
			a, b := w.pair(options{})
			from, to := w.ends[0], w.ends[1]
			to.fill(0, extentSize, 5)
			key, err := to.keys.Register(testDomain, to.base, 100000, rdma.LocalWrite|rdma.RemoteWrite|rdma.RemoteRead)
			must(t, err)
			sent := 0
			w.link.each = func(int, *wire.Header) bool {
				if sent++; sent == 10 {
					must(t, to.keys.Deregister(key))
				}
				return false
			}
			send(t, a, rdma.SendRequest{ID: 1, Op: o, RemoteAddr: to.base, RKey: key}, from.sge(0, 100000))
			w.run(time.Second)
			from.want(t, "1 IBV_WC_REM_ACCESS_ERR")
			if b.State() != rdma.Error || to.Dropped(NoAccess) == 0 {
				t.Errorf("the responder is in %v and dropped %d", b.State(), to.Dropped(NoAccess))
			}
		})
	}
}

// TestWorksInError: a queue pair in Error flushes requests and receives, also those posted later.
func TestWorksInError(t *testing.T) {
	w := newWorld(t, 1, Config{})
	a, _ := w.pair(options{})
	receiveInto(t, a, 1)
	send(t, a, rdma.SendRequest{ID: 2, Op: rdma.Send})
	must(t, a.Modify(rdma.Attributes{State: rdma.Error}, rdma.MaskState, 0))
	send(t, a, rdma.SendRequest{ID: 3, Op: rdma.Send})
	receiveInto(t, a, 4)
	w.run(time.Second)
	w.ends[0].want(t, "2 IBV_WC_WR_FLUSH_ERR", "1 IBV_WC_WR_FLUSH_ERR", "3 IBV_WC_WR_FLUSH_ERR", "4 IBV_WC_WR_FLUSH_ERR")
}

// TestReset: Reset discards posted requests, and the queue pair works again after reconnecting.
func TestReset(t *testing.T) {
	w := newWorld(t, 1, Config{})
	a, b := w.pair(options{})
	send(t, a, rdma.SendRequest{ID: 2, Op: rdma.Send})
	w.run(50 * time.Microsecond)
	for i, q := range []*QueuePair{a, b} {
		must(t, q.Modify(rdma.Attributes{State: rdma.Reset}, rdma.MaskState, 0))
		if _, err := q.PostReceive([]rdma.ReceiveRequest{{}}, nil); err == nil {
			t.Error("in RESET a receive was taken")
		}
		w.connect(q, w.ends[1-i].gid, []*QueuePair{b, a}[i].Number(), options{mtu: rdma.MTU1024})
	}
	w.run(time.Millisecond)
	w.ends[0].want(t)
	w.sendOne(a, b, 1, 3000)
}
