package nvmet

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/nvme/fabrics"
)

// looksForever connects to the discovery subsystem without a keep-alive time.
func (s *station) looksForever(host string) *hostQueue {
	s.Helper()
	q := s.open(fabrics.AdminQueue, fabrics.AdminDepth)
	c := connectCommand(fabrics.AdminQueue, fabrics.AdminDepth, connectData(host, fabrics.DiscoveryNQN, fabrics.AnyController))
	c.words[2] = 0 // KATO
	q.succeeds(c)
	return q
}

// TestDiscoveryHoldsNoSeats: more discovery controllers than there are sessions prevent no host
// from connecting, and end no connected host. The target ends the oldest ones and counts them.
func TestDiscoveryHoldsNoSeats(t *testing.T) {
	r, s := newSoftRig(t)
	c := softConfig(r)
	c.Sessions, c.Queues = 6, 3
	v := r.serve(c)
	h := s.connects(softHost, 1, 32)
	most, each := unproven(c.Sessions)
	const more = 3
	for range c.Sessions + more {
		s.looksForever("nqn.2026-01.com.example:mallory")
	}
	other := s.connects(softHost, 1, 32)
	for _, one := range []*handMade{h, other} {
		one.queues[0].succeeds(blocks(fabrics.OpRead, 0, 1, s.keyed(s.room(4096), 4096)))
	}
	st := v.server.Stats()
	if least := uint64(c.Sessions + more - each); st.GaveWay < least || st.Rejected[fabrics.RejectNoResources] != 0 || st.Ended != 0 {
		t.Errorf("%d queues gave way, not %d; %d were refused and %d ended", st.GaveWay, least, st.Rejected[fabrics.RejectNoResources], st.Ended)
	}
	if n := v.unproven(); n > each || each > most {
		t.Errorf("%d queues have proven nothing, of one host; at most %d may be", n, each)
	}
}

// unproven returns the number of sessions of hosts that have proven nothing.
func (v *served) unproven() (n int) {
	_ = v.do(func() error { n = v.server.unproven.Len(); return nil })
	return n
}

// TestDiscoveryKeepAlive: if a host requests no keep-alive time for a discovery controller, the
// controller has the same keep-alive time as in the kernel's target.
func TestDiscoveryKeepAlive(t *testing.T) {
	r, s := newSoftRig(t)
	v := r.serve(softConfig(r))
	s.looksForever("nqn.2026-01.com.example:idle")
	var limit time.Duration
	testenv.Must(t, v.do(func() error { limit = v.server.hosts[0].keepAlive(); return nil }))
	if want := 120*time.Second + grace; limit != want {
		t.Errorf("it may be silent for %v, not %v", limit, want)
	}
}

// TestForgedRequestsHoldNoSeats: forged REQs, from one address and from many, prevent no host from
// connecting, and end no connected host.
func TestForgedRequestsHoldNoSeats(t *testing.T) {
	for name, from := range map[string]func(n uint32, host netip.Addr) netip.Addr{
		"of the host's address": func(_ uint32, host netip.Addr) netip.Addr { return host },
		"of other addresses":    func(n uint32, _ netip.Addr) netip.Addr { return netip.AddrFrom4([4]byte{10, 77, 0, byte(50 + n%8)}) },
	} {
		t.Run(name, func(t *testing.T) {
			r, s, pair := newSoftPair(t)
			for n := range uint32(8) { // addresses that answer
				pair.A.Run(t, "ip", "addr", "add", fmt.Sprintf("10.77.0.%d/24", 50+n), "dev", pair.A.Ifname)
			}
			v := r.serve(softConfig(r))
			h := s.connects(softHost, 1, 32)
			send := sender(t, pair)
			for n := range uint32(64) {
				testenv.Must(t, send((&forgery{from(n, pair.A.IP), 0x1000 + n, 0x2000 + n, uint64(0xabcd00 + n), 4420}).packet(t, victimOf(pair))))
			}
			testenv.Wait(t, waitLimit, "seats to be taken", func() bool { return v.unproven() > 0 || v.server.Stats().GaveWay > 0 })
			s.getsIn()
			h.queues[0].succeeds(blocks(fabrics.OpRead, 0, 1, s.keyed(s.room(4096), 4096)))
			if most, _ := unproven(8); v.unproven() > most {
				t.Errorf("%d queues have proven nothing; at most %d may be", v.unproven(), most)
			}
		})
	}
}

// getsIn connects a host, in as many attempts as necessary: if forgeries have its own address, the
// target may end its queue in favour of a newer one.
func (s *station) getsIn() {
	s.Helper()
	next := s.next
	for end := time.Now().Add(testenv.Within(15 * time.Second)); ; {
		s.next = next
		q, err := s.dial(fabrics.AdminDepth, fabrics.PrivateRequest{HostRoom: fabrics.AdminDepth, HostSends: fabrics.AdminDepth}.Bytes())
		if err == nil {
			err = q.say(connectCommand(fabrics.AdminQueue, fabrics.AdminDepth, connectData(softHost, softNQN, fabrics.AnyController)).append(nil, 1))
		}
		if err == nil {
			var got fabrics.Completion
			if got, err = q.hear(); err == nil && got.Status == fabrics.Success {
				return
			}
		}
		q.close()
		if time.Now().After(end) {
			s.Fatalf("a good host does not get in: %v", err)
		}
	}
}

// TestQueuesBeforeConnect: a host can connect all its queue pairs before it sends Connect on them,
// as the kernel's initiator does.
func TestQueuesBeforeConnect(t *testing.T) {
	r, s := newSoftRig(t)
	c := softConfig(r)
	c.Sessions, c.Queues = 5, 4
	v := r.serve(c)
	h := s.connects(softHost, 0, 32)
	var queues []*hostQueue
	for id := range uint16(4) {
		q, err := s.dial(32, fabrics.PrivateRequest{Queue: id + 1, HostRoom: 32, HostSends: 32}.Bytes())
		s.must(err)
		queues = append(queues, q)
	}
	for i, q := range queues {
		q.succeeds(connectCommand(uint16(i+1), 32, connectData(softHost, softNQN, h.controller)))
	}
	if st := v.server.Stats(); st.GaveWay != 0 || st.Queues != 5 {
		t.Errorf("%d queues gave way, %d are there", st.GaveWay, st.Queues)
	}
	if _, err := s.dial(32, fabrics.PrivateRequest{Queue: 1, HostRoom: 32, HostSends: 32}.Bytes()); err == nil {
		t.Error("there is room for more queues than there are seats")
	}
}
