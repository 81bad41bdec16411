package transport

import (
	"fmt"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/roce/wire"
	"github.com/unifiedd/unifiedd/umem"
)

// TestForged throws packets at a queue pair that it must not take: nothing changes.
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
	to.Receive(w.now, []Arrival{stale}) // is acknowledged again, and changes nothing
	ahead := good
	ahead.Header.PSN += 5
	to.Receive(w.now, []Arrival{ahead}) // is asked for once
	same(t, "memory", to.memory(0, 4096), memory)
	if b.expected != before.expected || b.msn != before.msn {
		t.Errorf("%+v", b.responder)
	}
	send(t, a, rdma.SendRequest{Op: rdma.Write})
	w.run(time.Second)
	from.want(t, "0 WRITE")
}

// TestLateDuplicateRead has the link bring the request of an answered READ again, together with the next request that
// takes its place: that is no request too many.
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

// TestCongestion tells the peer of marks, and not of each.
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
