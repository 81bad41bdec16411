package transport

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/roce/wire"
	"github.com/unifiedd/unifiedd/umem"
)

// TestForged: a queue pair drops packets with a wrong address, number, partition, transport or
// sequence number, and its state and memory do not change.
func TestForged(t *testing.T) {
	w := newWorld(t, 1, Config{})
	a, b := w.pair(options{psn: 1000})
	from, to := w.ends[0], w.ends[1]
	before, memory := b.responder, to.fill(0, 4096, 3)
	frame := to.empty[0]
	good := Arrival{From: from.gid, Payload: []umem.Frame{{Addr: frame.Addr, Len: 64}}, Header: wire.Header{Opcode: wire.RCWriteOnly, PKey: wire.DefaultPKey,
		DestQPN: b.Number(), PSN: 1000, VA: to.base, RKey: to.key, DMALength: 64}}
	for _, c := range []struct {
		why    Drop
		change func(*Arrival)
	}{{WrongPeer, func(a *Arrival) { a.From = to.gid }}, {UnknownQueuePair, func(a *Arrival) { a.Header.DestQPN++ }}, {UnknownQueuePair, func(a *Arrival) { a.Header.DestQPN = 0 }},
		{BadPKey, func(a *Arrival) { a.Header.PKey = 0x8001 }}, {WrongTransport, func(a *Arrival) { a.Header.Opcode = wire.UCWriteOnly }},
		{WrongTransport, func(a *Arrival) { a.Header.Opcode = wire.UDSendOnly }}, {NoGroup, func(a *Arrival) { a.Header.DestQPN = multicast }},
		{BadPSN, func(a *Arrival) { a.Header.Opcode, a.Payload = wire.RCAcknowledge, nil }}} {
		forged := good
		c.change(&forged)
		n := to.Dropped(c.why)
		to.Receive(w.now, []Arrival{forged})
		if to.Dropped(c.why) != n+1 || fmt.Sprint(b.responder) != fmt.Sprint(before) || to.Progress(w.now, to.out[:]) != 0 {
			t.Errorf("%v: dropped %d, and the responder is %+v", c.why, to.Dropped(c.why)-n, b.responder)
		}
	}
	stale := good
	stale.Header.PSN -= 5
	to.Receive(w.now, []Arrival{stale}) // the responder acknowledges it again and changes nothing
	ahead := good
	ahead.Header.PSN += 5
	to.Receive(w.now, []Arrival{ahead}) // the responder requests the missing packets once
	same(t, "memory", to.memory(0, 4096), memory)
	if b.expected != before.expected || b.msn != before.msn {
		t.Errorf("%+v", b.responder)
	}
	send(t, a, rdma.SendRequest{Op: rdma.Write})
	w.run(time.Second)
	from.want(t, "0 WRITE")
}

// forgeries returns packets that look as if the peer had sent them, with the expected sequence
// numbers. Each would have an effect.
func forgeries(from, to *end, q *QueuePair) (all []Arrival) {
	for _, o := range []wire.Opcode{wire.RCSendFirst, wire.RCSendOnly, wire.RCSendOnlyImmediate, wire.RCSendOnlyInvalidate, wire.RCWriteFirst, wire.RCWriteOnly,
		wire.RCWriteOnlyImmediate, wire.RCReadRequest, wire.RCCompareSwap, wire.RCFetchAdd, wire.RCAcknowledge, wire.RCReadResponseOnly, wire.RCAtomicAcknowledge} {
		a := Arrival{From: from.gid, To: to.gid, Header: wire.Header{Opcode: o, PKey: wire.DefaultPKey, DestQPN: q.Number(), PSN: q.expected, AckReq: true,
			VA: to.base, RKey: to.key, DMALength: 1024, Compare: binary.NativeEndian.Uint64(to.memory(0, 8)), SwapAdd: 77, Syndrome: wire.ACK}}
		if a.Header.Opcode.IsResponse() {
			a.Header.PSN = q.una
		}
		if o.CarriesPayload() {
			a.Payload = []umem.Frame{{Addr: to.empty[0].Addr, Len: 1024}}
		}
		all = append(all, a)
		if o == wire.RCAcknowledge {
			for _, s := range []wire.Syndrome{wire.NAKSequence, wire.NAKRemoteAccess, wire.RNRNAK(1)} {
				a.Header.Syndrome = s
				all = append(all, a)
			}
		}
	}
	return all
}

// victims makes two queue pairs of one end that have receives posted and requests outstanding.
func victims(t *testing.T) (w *world, qs [2]*QueuePair) {
	w = newWorld(t, 1, Config{})
	from, to := w.ends[0], w.ends[1]
	to.fill(0, extentSize, 3)
	copy(to.region.Bytes(umem.Frame{Addr: to.empty[0].Addr, Len: 1024}), from.fill(0, 1024, 99))
	w.link.each = func(int, *wire.Header) bool { return true }
	for i := range qs {
		_, qs[i] = w.pair(options{psn: 1000, tweak: func(a *rdma.Attributes) { a.Timeout = 0 }})
		receiveInto(t, qs[i], 1, to.sge(2048, 2048))
		for _, o := range []rdma.Op{rdma.Write, rdma.Send, rdma.Read, rdma.FetchAdd} {
			send(t, qs[i], rdma.SendRequest{Op: o, RemoteAddr: from.base, RKey: from.key}, to.sge(8192, 8))
		}
	}
	to.transmit()
	to.poll()
	return w, qs
}

// picture describes the whole state of an end's queue pairs, and its memory.
func (e *end) picture() string {
	e.poll()
	s := fmt.Sprintf("%x %v %v", sha256.Sum256(e.memory(0, extentSize)), len(e.done), len(e.got))
	for _, slot := range e.slots {
		if q := slot.pair; q != nil {
			s += fmt.Sprintf(" %d: %v %+v %+v %+v;", q.qpn, q.State(), q.attrs, q.requester, q.responder)
		}
	}
	return s
}

// TestForgedElsewhere: a packet from another address, to another queue pair, with another partition
// or of another transport changes no queue pair, writes no byte and gets no answer.
func TestForgedElsewhere(t *testing.T) {
	w, qs := victims(t)
	from, to := w.ends[0], w.ends[1]
	before := to.picture()
	for name, change := range map[string]func(*Arrival){
		"another peer":      func(a *Arrival) { a.From[15]++ },
		"ourselves":         func(a *Arrival) { a.From = to.gid },
		"no queue pair":     func(a *Arrival) { a.Header.DestQPN += 5 },
		"an old number":     func(a *Arrival) { a.Header.DestQPN ^= 1 << 20 },
		"number 0":          func(a *Arrival) { a.Header.DestQPN = 0 },
		"number 1":          func(a *Arrival) { a.Header.DestQPN = 1 },
		"a group":           func(a *Arrival) { a.Header.DestQPN = multicast },
		"another partition": func(a *Arrival) { a.Header.PKey = 0x1234 },
		"UC":                func(a *Arrival) { a.Header.Opcode |= 0x20 },
		"UD":                func(a *Arrival) { a.Header.Opcode = a.Header.Opcode&0x1f | 0x60 },
	} {
		for _, a := range forgeries(from, to, qs[0]) {
			change(&a)
			to.Receive(w.now, []Arrival{a})
			if a.Kept || to.Progress(w.now, to.out[:]) != 0 || to.picture() != before {
				t.Fatalf("%v, %s: something has changed:\n%s\n%s", a.Header.Opcode, name, before, to.picture())
			}
		}
	}
}

// TestForgedPSN: a request with an unexpected packet number changes neither the expected number nor
// the memory, and takes no receive. The responder sends at most one ACK or NAK.
func TestForgedPSN(t *testing.T) {
	for _, off := range []int{1, 2, 1000, 1<<23 - 1, -1, -2, -1000, -1<<23 + 1} {
		w, qs := victims(t)
		from, to := w.ends[0], w.ends[1]
		q, other := qs[0], fmt.Sprintf("%+v %+v", qs[1].requester, qs[1].responder)
		sum := func() string { return fmt.Sprintf("%x", sha256.Sum256(to.memory(0, extentSize))) }
		before, requester, memory := q.responder, q.requester, sum()
		for _, a := range forgeries(from, to, q) {
			if a.Header.Opcode.IsResponse() {
				continue // TestGhosts covers responses
			}
			a.Header.PSN = q.expected.Add(off)
			to.Receive(w.now, []Arrival{a})
			n := to.Progress(w.now, to.out[:])
			if n > 1 || n == 1 && (to.out[0].Header.Opcode != wire.RCAcknowledge || !to.out[0].Header.Syndrome.IsACK() && to.out[0].Header.Syndrome != wire.NAKSequence) {
				t.Errorf("%v at %+d: %d packets, %+v", a.Header.Opcode, off, n, to.out[0].Header)
			}
		}
		to.poll()
		now := q.responder
		if now.expected != before.expected || now.msn != before.msn || now.message != before.message || now.receive != before.receive || now.replies.pending != 0 ||
			q.requester != requester || q.State() != rdma.ReadyToSend || sum() != memory || len(to.done)+len(to.got) != 0 {
			t.Errorf("at %+d: the responder was %+v and is %+v", off, before, now)
		}
		if now := fmt.Sprintf("%+v %+v", qs[1].requester, qs[1].responder); now != other {
			t.Errorf("at %+d: another queue pair was %s and is %s", off, other, now)
		}
	}
}

// TestWrongKey: a request with a key that grants nothing gets one NAK. The queue pair and
// everything posted to it fail, and the program gets an event. No byte is written or read, and no
// other queue pair changes.
func TestWrongKey(t *testing.T) {
	for _, o := range []wire.Opcode{wire.RCWriteFirst, wire.RCWriteOnly, wire.RCWriteOnlyImmediate, wire.RCReadRequest, wire.RCCompareSwap, wire.RCFetchAdd} {
		w, qs := victims(t)
		from, to := w.ends[0], w.ends[1]
		q, memory := qs[0], bytes.Clone(to.memory(0, extentSize))
		other := fmt.Sprintf("%+v %+v", qs[1].requester, qs[1].responder)
		all := forgeries(from, to, q)
		a := all[slices.IndexFunc(all, func(a Arrival) bool { return a.Header.Opcode == o })]
		a.Header.RKey += 1 << 8
		if o == wire.RCWriteFirst {
			a.Header.DMALength = 5000
		}
		to.Receive(w.now, []Arrival{a})
		n := to.Progress(w.now, to.out[:])
		if h := &to.out[0].Header; n != 1 || h.Opcode != wire.RCAcknowledge || h.Syndrome != wire.NAKRemoteAccess || h.PSN != a.Header.PSN || to.out[0].QPN != q.qpn {
			t.Errorf("%v: %d answers, %+v", o, n, h)
		}
		to.poll()
		flushed := []string{"0 IBV_WC_WR_FLUSH_ERR", "0 IBV_WC_WR_FLUSH_ERR", "0 IBV_WC_WR_FLUSH_ERR", "0 IBV_WC_WR_FLUSH_ERR", "1 IBV_WC_WR_FLUSH_ERR"}
		if o == wire.RCWriteOnlyImmediate {
			flushed = append([]string{"1 IBV_WC_LOC_ACCESS_ERR"}, flushed[:4]...)
		}
		to.want(t, flushed...)
		if fmt.Sprint(to.got) != fmt.Sprint([]rdma.Event{{Kind: rdma.QueuePairAccess, QPN: q.qpn}}) || q.State() != rdma.Error {
			t.Errorf("%v: events %v, in %v", o, to.got, q.State())
		}
		to.Receive(w.now, []Arrival{a}) // the same packet again gets no answer
		if n := to.Progress(w.now, to.out[:]); n != 0 {
			t.Errorf("%v: a queue pair in error answers %d packets", o, n)
		}
		same(t, "memory", to.memory(0, extentSize), memory)
		if now := fmt.Sprintf("%+v %+v", qs[1].requester, qs[1].responder); now != other {
			t.Errorf("%v: another queue pair was %s and is %s", o, other, now)
		}
	}
}

// TestLateDuplicateRead: the responder accepts a new READ that arrives together with a duplicate of
// an answered one. The duplicate does not count against the limit of outstanding READs.
func TestLateDuplicateRead(t *testing.T) {
	w := newWorld(t, 1, Config{})
	a, b := w.pair(options{tweak: func(a *rdma.Attributes) { a.MaxReads, a.MaxRemoteReads = 1, 1 }})
	from, to := w.ends[0], w.ends[1]
	read := rdma.SendRequest{ID: 1, Op: rdma.Read, RemoteAddr: to.base, RKey: to.key}
	send(t, a, read, from.sge(0, 3000))
	from.Progress(w.now, from.out[:])
	first := Arrival{From: from.gid, Header: from.out[0].Header}
	to.Receive(w.now, []Arrival{first})
	w.run(time.Millisecond)
	send(t, a, read, from.sge(0, 3000))
	from.Progress(w.now, from.out[:])
	to.Receive(w.now, []Arrival{first, {From: from.gid, Header: from.out[0].Header}})
	w.run(time.Millisecond)
	from.want(t, "1 READ", "1 READ")
	if b.State() != rdma.ReadyToSend || b.replies.pending != 0 {
		t.Errorf("the responder is in %v, %d answers are to be given", b.State(), b.replies.pending)
	}
}

// TestCongestion: the receiver sends a CNP for packets that are marked CE, but not one for each.
func TestCongestion(t *testing.T) {
	w := newWorld(t, 1, Config{})
	a, _ := w.pair(options{})
	from, to := w.ends[0], w.ends[1]
	w.ends[0].template, _ = wire.NewTemplate(&wire.Path{Source: from.gid, Destination: to.gid, SourcePort: 0xc000, TrafficClass: wire.CE})
	for range 10 {
		send(t, a, rdma.SendRequest{Op: rdma.Write})
	}
	w.run(time.Millisecond)
	if to.Count(CongestionMarks) != 10 || to.Count(CNPsSent) != 1 || from.Count(CNPsReceived) != 1 {
		t.Errorf("%d marks, %d CNPs sent, %d received", to.Count(CongestionMarks), to.Count(CNPsSent), from.Count(CNPsReceived))
	}
}
