package cm

import (
	"net/netip"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/cm"
	"github.com/unifiedd/unifiedd/rdma/roce/mad"
)

// forged returns a request with numbers that a peer may choose freely.
func (h *host) forged(id, qpn uint32, guid uint64) mad.Message {
	w := h.way()
	from := mad.Address{From: netip.AddrPortFrom(w.remote.Addr(), 1), To: w.local.Addr()}
	return mad.Message{Kind: mad.REQ, Transaction: 1, Local: id, Private: from.Append(nil), Request: mad.Request{ServiceID: mad.ServiceID(port), GUID: guid, QPN: qpn,
		PKey: wholePartition, MTU: rdma.MTU1024, Primary: mad.Path{Local: w.remote, Remote: w.local}}}
}

// told makes a host receive a message, and returns its answers.
func (h *host) told(m mad.Message) (answers []mad.Message) {
	var b [mad.Size]byte
	m.Encode(&b)
	h.machine.receive(h.way(), b[:])
	for i := range h.out {
		var a mad.Message
		if why := a.Decode(h.out[i].bytes[:]); why != mad.WellFormed {
			h.Fatal(why)
		}
		answers = append(answers, a)
	}
	h.out = h.out[:0]
	return answers
}

// TestJudged: a host rejects each impossible request with the right reason.
func TestJudged(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(m *mad.Message)
		want   cm.Reason
	}{
		{"transport", func(m *mad.Message) { m.Request.Transport = 1 }, reasonTransport},
		{"extended transport", func(m *mad.Message) { m.Request.Extended = 1 }, reasonTransport},
		{"no card", func(m *mad.Message) { m.Request.GUID = 0 }, cm.ReasonUnsupported},
		{"queue pair 1", func(m *mad.Message) { m.Request.QPN = 1 }, cm.ReasonUnsupported},
		{"partition", func(m *mad.Message) { m.Request.PKey = 0x8001 }, cm.ReasonUnsupported},
		{"another address of ours", func(m *mad.Message) { m.Request.Primary.Remote[15]++ }, cm.ReasonInvalidGID},
		{"another address of the peer's", func(m *mad.Message) { m.Request.Primary.Local[15]++ }, cm.ReasonInvalidGID},
		{"MTU 0", func(m *mad.Message) { m.Request.MTU = 0 }, cm.ReasonInvalidMTU},
		{"MTU too long", func(m *mad.Message) { m.Request.MTU = rdma.MTU2048 }, cm.ReasonInvalidMTU},
		{"another port", func(m *mad.Message) { m.Request.ServiceID++ }, cm.ReasonNoListener},
		{"another port space", func(m *mad.Message) { m.Request.ServiceID ^= 1 << 16 }, cm.ReasonNoListener},
		{"no address", func(m *mad.Message) { m.Private = nil }, cm.ReasonUnsupported},
		{"somebody else's address", func(m *mad.Message) { m.Private[19]++ }, cm.ReasonUnsupported},
	} {
		h := newWorld(t, 1, quick).hosts[0]
		m := h.forged(5, 17, 6)
		c.change(&m)
		got := h.told(m)
		if len(got) != 1 || got[0].Kind != mad.REJ || cm.Reason(got[0].Reason) != c.want || got[0].Remote != 5 || got[0].About != mad.AboutREQ || len(h.locals) != 0 || h.counts.own[rejected] != 1 {
			t.Errorf("%s: %+v, %d connections", c.name, got, len(h.locals))
		}
	}
}

// TestAlternate: a host rejects a request with an alternate path.
func TestAlternate(t *testing.T) {
	h := newWorld(t, 1, quick).hosts[0]
	m := h.forged(5, 17, 6)
	var b [mad.Size]byte
	m.Encode(&b)
	b[24+100] = 0xfe // the address of the alternate path
	h.machine.receive(h.way(), b[:])
	var a mad.Message
	if len(h.out) != 1 || a.Decode(h.out[0].bytes[:]) != mad.WellFormed || cm.Reason(a.Reason) != reasonAlternate {
		t.Errorf("%+v", a)
	}
}

// TestFlood: a listener keeps as many waiting requests as it has room for, and the host rejects the
// others.
func TestFlood(t *testing.T) {
	h := newWorld(t, 1, quick).hosts[0]
	room := cap(h.listener.requests)
	for i := range uint32(5000) {
		got := h.told(h.forged(i+5, i+17, 6))
		if i >= uint32(room) && (len(got) != 1 || cm.Reason(got[0].Reason) != cm.ReasonNoResources) {
			t.Fatalf("%+v", got)
		}
	}
	if len(h.locals) != room || len(h.remotes) != room || len(h.pairs) != 0 || h.counts.own[full] != uint64(5000-room) {
		t.Errorf("%d connections, %d and %d; %d refused", len(h.locals), len(h.remotes), len(h.pairs), h.counts.own[full])
	}
	// A program that rejects at once leaves connections in time-wait, whose number is bounded too.
	for i := range uint32(5000) {
		if i >= uint32(room) {
			h.told(h.forged(1<<20+i, 1<<20+i, 6))
		}
		h.refuse(<-h.listener.requests, nil)
		h.out = h.out[:0]
	}
	if most := h.config.Connections; len(h.waits) != most || len(h.locals) != most || h.counts.own[cut] == 0 {
		t.Errorf("%d wait, %d connections", len(h.waits), len(h.locals))
	}
	for range 2 * maxOut { // no thread sends the queued messages
		var b [mad.Size]byte
		m := h.forged(3, 1, 6)
		m.Encode(&b)
		h.machine.receive(h.way(), b[:])
	}
	if len(h.out) != maxOut || h.counts.own[queueFull] != maxOut {
		t.Errorf("%d messages are to be sent, %d were too many", len(h.out), h.counts.own[queueFull])
	}
}

// connects makes a host the passive side of an established connection.
func (h *host) connects(id, qpn uint32) *connection {
	h.Helper()
	h.told(h.forged(id, qpn, 6))
	c := <-h.listener.requests
	e := h.end(1)
	h.sendREP(c, e, endpoint{e.Queue.QPN(), 7})
	h.out = h.out[:0]
	h.told(mad.Message{Kind: mad.RTU, Local: id, Remote: c.local})
	if c.state != connected || h.halfOpen.Len() != 0 {
		h.Fatal(c.state, h.halfOpen.Len())
	}
	return c
}

// passes lets time pass, and returns the messages that the host sends then.
func (h *host) passes(span time.Duration) (said []mad.Message) {
	h.machine.now += instant(span)
	h.tick()
	for i := range h.out {
		var a mad.Message
		if why := a.Decode(h.out[i].bytes[:]); why != mad.WellFormed {
			h.Fatal(why)
		}
		said = append(said, a)
	}
	h.out = h.out[:0]
	return said
}

// TestClaimed: a host rejects a request with the queue pair of an established connection and probes
// the peer. The connection ends only if the peer does not answer, and the next probe has to wait
// for ProbeRest.
func TestClaimed(t *testing.T) {
	h := newWorld(t, 1, quick).hosts[0]
	c := h.connects(5, 17)
	got := h.told(h.forged(9, 17, 6))
	if len(got) != 2 || cm.Reason(got[0].Reason) != cm.ReasonStale || got[1].Kind != mad.REP || got[1].Remote != 5 || c.state != connected {
		t.Fatalf("%+v", got)
	}
	for i := range uint32(100) { // a flood causes no more probes
		if got = h.told(h.forged(100+i, 17, 6)); len(got) != 1 {
			t.Fatalf("%+v", got)
		}
	}
	h.told(mad.Message{Kind: mad.RTU, Local: 5, Remote: c.local})
	if got = h.passes(ProbeRest - 1); len(got) != 0 || c.state != connected || h.counts.own[probesAlive] != 1 || h.counts.own[probes] != 1 {
		t.Fatalf("%+v, state %d", got, c.state)
	}
	if got = h.told(h.forged(10, 17, 6)); len(got) != 1 || h.counts.own[probesHeld] != 1 {
		t.Fatalf("the peer is asked again too soon: %+v", got)
	}
	h.passes(1)
	if got = h.told(h.forged(11, 17, 6)); len(got) != 2 {
		t.Fatalf("%+v", got)
	}
	for range ProbeTries - 1 {
		if got = h.passes(ProbeWait); len(got) != 1 || got[0].Kind != mad.REP || c.state != connected {
			t.Fatalf("%+v, state %d", got, c.state)
		}
	}
	if got = h.passes(ProbeWait); len(got) != 1 || got[0].Kind != mad.DREQ || c.state != timeWait || h.counts.own[probesGone] != 1 {
		t.Fatalf("%+v, state %d", got, c.state)
	}
}

// TestRestarted: a host accepts a peer that has restarted with the same queue pair within
// RestartLimit, even if it probed the peer just before.
func TestRestarted(t *testing.T) {
	for _, response := range []uint8{10, 21, 31} { // the response time that the peer announces
		h := newWorld(t, 1, quick).hosts[0]
		h.connects(5, 17).timeout = response
		h.told(h.forged(9, 17, 6))
		h.told(mad.Message{Kind: mad.RTU, Local: 5, Remote: h.remotes[remoteKey{h.way().remote, 6, 5}].local}) // the peer still has the connection
		waited := time.Duration(0)
		for id := uint32(100); len(h.listener.requests) == 0; id++ {
			h.told(h.forged(id, 17, 6))
			h.passes(100 * time.Millisecond)
			if waited += 100 * time.Millisecond; waited > RestartLimit {
				t.Fatalf("it is not let in after %v", waited)
			}
		}
		t.Logf("a peer with time-outs of %d is let in after %v", response, waited)
	}
}

// TestClaimedOfServer: the active side probes by a DREQ for no queue pair, which only a peer
// without the connection answers.
func TestClaimedOfServer(t *testing.T) {
	for _, gone := range []bool{false, true} {
		w := newWorld(t, 1, quick)
		h, o := w.hosts[0], w.hosts[1]
		c := h.connect()
		w.run(1000*millisecond, &[2][]*connection{{c}, nil})
		if c.state != connected {
			t.Fatal(c.state)
		}
		if gone {
			o.machine = newMachine(quick, o.guid, o.mtu)
		}
		req := h.forged(77, c.theirs.qpn, o.guid)
		var b [mad.Size]byte
		req.Encode(&b)
		h.do(func() { h.receive(h.way(), b[:]) })
		h.do(func() { h.receive(h.way(), b[:]) })
		w.run(ProbeTries*instant(ProbeWait)+1000*millisecond, &[2][]*connection{})
		if alive := c.state == connected && h.counts.own[probesAlive] == 1 && len(o.locals) == 1; alive == gone || h.counts.own[probes] != 1 {
			t.Errorf("the peer is gone: %v; the state is %d, %d alive, %d gone, the peer has %d", gone, c.state, h.counts.own[probesAlive], h.counts.own[probesGone], len(o.locals))
		}
	}
}

// TestForgedREJ: a REJ that names only the communication ID of the request does not end an
// established connection.
func TestForgedREJ(t *testing.T) {
	h := newWorld(t, 1, quick).hosts[0]
	c := h.connects(5, 17)
	reject := mad.Message{Kind: mad.REJ, Local: 5, Reason: uint16(cm.ReasonTimeout), InfoBytes: 8}
	be.PutUint64(reject.Info[:], 6)
	h.told(reject)
	if c.state != connected || h.counts.own[unmatched] != 1 {
		t.Errorf("the state is %d", c.state)
	}
	h.told(h.forged(6, 18, 6))
	half := <-h.listener.requests
	reject.Local = 6
	if h.told(reject); half.state != timeWait {
		t.Errorf("the state of a request that its peer gives up is %d", half.state)
	}
}

// TestHalfOpen: newer requests replace unconfirmed ones, per address and in total, and unconfirmed
// ones end in time.
func TestHalfOpen(t *testing.T) {
	h := newWorld(t, 1, Config{Connections: 1024, Response: 10, Lifetime: 8, Retries: 15, Service: 14}).hosts[0]
	h.listener.requests = make(chan *connection, 64)
	ask := func(id uint32, from byte) *connection {
		m, w := h.forged(id, 17+id, 6), h.way()
		w.remote[15] = from
		m.Request.Primary.Local = w.remote
		m.Private = mad.Address{From: netip.AddrPortFrom(w.remote.Addr(), 1), To: w.local.Addr()}.Append(nil)
		var b [mad.Size]byte
		m.Encode(&b)
		h.machine.receive(w, b[:])
		h.out = h.out[:0]
		select {
		case c := <-h.listener.requests:
			e := h.end(1)
			h.sendREP(c, e, endpoint{e.Queue.QPN(), 7})
			return c
		default:
			t.Fatal("a request did not come")
			return nil
		}
	}
	first := ask(1, 9)
	for id := range uint32(maxHalfOpenPerAddress) {
		ask(2+id, 9)
	}
	if first.state != timeWait || !first.doneClosed || h.halfOpen.Len() != maxHalfOpenPerAddress || h.counts.own[addressLimit] != 1 {
		t.Errorf("the first of an address is in state %d, %d are half open", first.state, h.halfOpen.Len())
	}
	for id := range uint32(maxHalfOpen) {
		ask(1000+id, byte(10+id))
	}
	if h.halfOpen.Len() != maxHalfOpen || h.counts.own[halfOpenLimit] != maxHalfOpenPerAddress {
		t.Errorf("%d are half open, %d gave way", h.halfOpen.Len(), h.counts.own[halfOpenLimit])
	}
	for range 100 {
		h.passes(HalfOpenTime / 99)
	}
	if h.halfOpen.Len() != 0 {
		t.Errorf("%d are half open still", h.halfOpen.Len())
	}
	m := h.forged(5000, 5000, 6) // no program accepts this one
	h.told(m)
	if h.halfOpen.Len() != 1 {
		t.Fatal(h.halfOpen.Len())
	}
	if got := h.passes(mad.Duration(h.config.Service)); len(got) != 1 || got[0].Kind != mad.REJ || h.halfOpen.Len() != 0 {
		t.Errorf("%+v, %d half open", got, h.halfOpen.Len())
	}
}

// TestForeign: a message that is not from the peer, or names other numbers, changes nothing.
func TestForeign(t *testing.T) {
	h := newWorld(t, 1, quick).hosts[0]
	h.told(h.forged(5, 17, 6))
	c := <-h.listener.requests
	e := h.end(1)
	h.sendREP(c, e, endpoint{e.Queue.QPN(), 7})
	h.told(mad.Message{Kind: mad.RTU, Local: 5, Remote: c.local})
	for _, m := range []mad.Message{{Kind: mad.DREQ, Local: 6, Remote: c.local, RemoteQPN: c.ours.qpn}, {Kind: mad.DREQ, Local: 5, Remote: c.local + 1, RemoteQPN: c.ours.qpn},
		{Kind: mad.DREQ, Local: 5, Remote: c.local, RemoteQPN: c.ours.qpn + 1}, {Kind: mad.REJ, Local: 6, Remote: c.local}, {Kind: mad.REP, Local: 5, Remote: c.local},
		{Kind: mad.MRA, Local: 5, Remote: c.local}, {Kind: mad.DREP, Local: 5, Remote: c.local}} {
		h.told(m)
	}
	var b [mad.Size]byte
	(&mad.Message{Kind: mad.DREQ, Local: 5, Remote: c.local, RemoteQPN: c.ours.qpn}).Encode(&b)
	w := h.way()
	w.remote[15]++
	h.machine.receive(w, b[:])
	if c.state != connected || h.counts.own[unmatched] != 4 || h.counts.own[unexpected] != 4 {
		t.Errorf("state %d, %d unmatched, %d unexpected", c.state, h.counts.own[unmatched], h.counts.own[unexpected])
	}
	h.out = h.out[:0]
	if got := h.told(mad.Message{Kind: mad.SIDRREQ, Local: 3, ServiceID: 4}); len(got) != 1 || got[0].Kind != mad.SIDRREP || got[0].Status != sidrUnsupported || got[0].Local != 3 {
		t.Errorf("%+v", got)
	}
}

// FuzzMachine: whatever messages arrive, the state of a machine is bounded, and no timer stays
// forever.
func FuzzMachine(f *testing.F) {
	for k := mad.REQ; k <= mad.SIDRREP; k++ {
		f.Add([]byte{byte(k), 0, 1, 2, byte(k), 5, 1, 2})
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		w := newWorld(t, 1, quick)
		h := w.hosts[0]
		var all [2][]*connection
		for len(script) >= 4 {
			kind, id, qpn, reason := mad.REQ+mad.Kind(script[0]%9), uint32(script[1]%8), uint32(script[2]%8), script[3]
			script = script[4:]
			m := h.forged(id+1, qpn, uint64(reason%2))
			m.Kind, m.Reason, m.About, m.RemoteQPN, m.Timeout = kind, uint16(reason), mad.About(reason%4), qpn+16, reason%32
			m.Reply = mad.Reply{QPN: qpn, GUID: uint64(reason % 2)}
			for local := range h.locals {
				if local%3 == qpn%3 {
					m.Remote = local
				}
			}
			h.told(m)
			h.do(func() {})
			w.mail = nil // the other host does not exist
			if reason%5 == 0 {
				if c := h.connect(); c != nil { // nil if there are already as many as allowed
					all[0] = append(all[0], c)
				}
			}
			h.serve(all[0])
			w.run(5*millisecond, &all)
			if n := len(h.locals); n > 2*h.config.Connections || len(h.waits) > h.config.Connections || len(h.remotes) > n || len(h.pairs) > n || len(h.timers) > n {
				t.Fatalf("%d connections, %d waiting, by others' numbers %d and %d, %d timers", n, len(h.waits), len(h.remotes), len(h.pairs), len(h.timers))
			}
		}
		w.rates.lose = 100
		w.run(1<<40, &all)
		if len(h.timers) != 0 {
			t.Errorf("%d timers in the end", len(h.timers))
		}
	})
}
