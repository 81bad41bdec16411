package nvmet

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/nvme/fabrics"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/roce"
	"github.com/unifiedd/unifiedd/rdma/roce/cm"
	"github.com/unifiedd/unifiedd/rdma/roce/mad"
	"github.com/unifiedd/unifiedd/rdma/roce/wire"
)

// forgery is a REQ whose source address need not be the address of its sender.
type forgery struct {
	from    netip.Addr
	id, qpn uint32
	guid    uint64
	port    uint16
}

// message returns the REQ of a host's admin queue.
func (f *forgery) message(to netip.Addr) *mad.Message {
	return &mad.Message{Kind: mad.REQ, Transaction: uint64(f.id), Local: f.id,
		Private: append(mad.Address{From: netip.AddrPortFrom(f.from, 50000), To: to}.Append(nil), fabrics.PrivateRequest{Queue: 0, HostRoom: 32, HostSends: 32}.Bytes()...),
		Request: mad.Request{ServiceID: mad.ServiceID(f.port), GUID: f.guid, QPN: f.qpn, PSN: 1, Responder: 16, Initiator: 16, PKey: 0xffff, MTU: rdma.MTU1024, CMRetries: 15, Retries: 7, RNRRetries: 7,
			LocalResponse: 20, RemoteResponse: 20, Primary: mad.Path{LocalLID: 0xffff, RemoteLID: 0xffff, Local: rdma.GIDOf(f.from), Remote: rdma.GIDOf(to), HopLimit: 64, AckTimeout: 18}}}
}

// victim is the destination of forgeries, and the card from which they are sent.
type victim struct {
	ip       netip.Addr
	mac, via net.HardwareAddr
}

func victimOf(p *testenv.Pair) *victim { return &victim{p.B.IP, p.B.MAC, p.A.MAC} }

// packet returns the datagram that carries the REQ.
func (f *forgery) packet(t *testing.T, to *victim) []byte {
	t.Helper()
	return to.datagram(t, f.from, f.message(to.ip), f.id)
}

// datagram returns the packet that carries a message from an address.
func (to *victim) datagram(t *testing.T, from netip.Addr, m *mad.Message, number uint32) []byte {
	t.Helper()
	var body [mad.Size]byte
	m.Encode(&body)
	tpl, err := wire.NewTemplate(&wire.Path{Source: rdma.GIDOf(from), Destination: rdma.GIDOf(to.ip), SourceMAC: [6]byte(to.via), DestinationMAC: [6]byte(to.mac), SourcePort: 0xc001, HopLimit: 64})
	testenv.Must(t, err)
	h := wire.Header{Opcode: wire.UDSendOnly, PKey: 0xffff, DestQPN: 1, QKey: mad.QKey, SourceQPN: 1, PSN: wire.PSN(number)}
	b := make([]byte, 1024)
	n := tpl.Put(b, uint16(number), wire.BTHBytes+8+mad.Size+wire.ICRCBytes)
	n += h.Encode(b[n:])
	n += copy(b[n:], body[:])
	c := wire.Begin(b[tpl.Network():n])
	return b[:n+c.Finish(b[n:], 0)]
}

// sender sends raw packets at the hosts' end of the wire.
func sender(t *testing.T, pair *testenv.Pair) (send func([]byte) error) {
	t.Helper()
	pair.A.Do(t, func() { send = senderHere(t, pair.A.Index) })
	return send
}

// senderHere sends raw packets through an interface of the calling thread's namespace.
func senderHere(t *testing.T, index int) func([]byte) error {
	t.Helper()
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
	testenv.Must(t, err)
	t.Cleanup(func() { _ = unix.Close(fd) })
	return func(b []byte) error {
		return unix.Sendto(fd, b, 0, &unix.SockaddrLinklayer{Ifindex: index, Halen: 6})
	}
}

func softConfig(r *rig) Config {
	return Config{Sessions: 8, Capsule: 4096, Subsystems: []Subsystem{{NQN: softNQN, Hosts: []string{softHost}, Namespaces: []Namespace{{ID: 1, Disk: r.zram(16 << 20), UUID: [16]byte{1}}}}}}
}

// TestForgedRequestEndsNothing: any number of forged REQs with the address, card and queue pair of
// a connected host does not end its connection.
func TestForgedRequestEndsNothing(t *testing.T) {
	r, s, pair := newSoftPair(t)
	r.serve(softConfig(r))
	h := s.connects(softHost, 1, 32)
	q := h.queues[0]
	send := sender(t, pair)
	guid := s.pd.Device().Capabilities().NodeGUID
	begun := time.Now()
	for id := uint32(0xdead); time.Since(begun) < cm.ProbeTries*cm.ProbeWait+time.Second; id++ {
		testenv.Must(t, send((&forgery{pair.A.IP, id, q.qp.QPN(), guid, 4420}).packet(t, victimOf(pair))))
		select {
		case <-q.conn.Done():
			t.Fatalf("the queue ended after %v: %v", time.Since(begun), q.conn.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
	q.succeeds(blocks(fabrics.OpRead, 0, 1, s.keyed(s.room(4096), 4096)))
	counted := countersOf(r.endpoint.Device)
	if counted["cm_stale"] < 10 || counted["cm_probes_alive"] != 1 || counted["cm_probes_held"] < 10 || counted["cm_probes_gone"] != 0 {
		t.Errorf("%d requests were refused, %d probes answered, %d not, %d held", counted["cm_stale"], counted["cm_probes_alive"], counted["cm_probes_gone"], counted["cm_probes_held"])
	}
}

// countersOf returns the counters of a device.
func countersOf(d rdma.Device) map[string]uint64 {
	all := map[string]uint64{}
	for _, c := range d.(*roce.Device).Counters() {
		all[c.Name] = c.Value
	}
	return all
}

// TestRequestsFromNowhere: forged REQs from addresses that answer no ARP do not delay a good host,
// with and without a listener on their port.
func TestRequestsFromNowhere(t *testing.T) {
	for name, port := range map[string]uint16{"listened": 4420, "not listened": 9999} {
		t.Run(name, func(t *testing.T) {
			r, s, pair := newSoftPair(t)
			r.serve(softConfig(r))
			send, stop, ended := sender(t, pair), make(chan struct{}), make(chan int)
			go func() {
				var err error
				n := uint32(0)
				for ; err == nil; n++ {
					select {
					case <-stop:
						ended <- int(n)
						return
					case <-time.After(2 * time.Millisecond):
						from := netip.AddrFrom4([4]byte{10, 77, 0, byte(50 + n%200)})
						err = send((&forgery{from, 0x1000 + n, 0x2000 + n, uint64(0xabcd00 + n), port}).packet(t, victimOf(pair)))
					}
				}
				t.Error(err)
				<-stop
				ended <- int(n)
			}()
			time.Sleep(time.Second)
			begun := time.Now()
			q, err := s.dial(fabrics.AdminDepth, fabrics.PrivateRequest{Queue: 0, HostRoom: fabrics.AdminDepth, HostSends: fabrics.AdminDepth}.Bytes())
			waited := time.Since(begun)
			q.close()
			close(stop)
			counted := countersOf(r.endpoint.Device)
			t.Logf("the good host was answered after %v: %v; %d were forged, %d look-ups cut, %d messages dropped", waited.Round(time.Millisecond), err, <-ended,
				counted["cm_lookups_cut"], counted["cm_dropped_no_way"])
			if err != nil || waited > testenv.Within(5*time.Second) {
				t.Error("the good host was kept waiting")
			}
			if counted["cm_lookups_cut"] == 0 || counted["cm_dropped_no_way"] == 0 {
				t.Error("look-ups that gave way are not counted")
			}
		})
	}
}
