package mad

import (
	"bytes"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/rdma"
)

// sample returns a message of a kind with a value in each of its fields.
func sample(k Kind, r *rand.Rand) Message {
	private := make([]byte, Size-headerBytes-privates[k.Index()])
	for i := range private {
		private[i] = byte(r.Uint32())
	}
	m := Message{Kind: k, Transaction: r.Uint64(), Local: r.Uint32(), Remote: r.Uint32(), Private: private}
	u8 := func(bits int) uint8 { return uint8(r.Uint32()) & (1<<bits - 1) }
	switch k {
	case REQ, SIDRREQ, SIDRREP:
		m.Remote = 0
	}
	switch k {
	case REQ:
		m.Request = Request{ServiceID: r.Uint64(), GUID: r.Uint64(), QPN: r.Uint32() & mask24, PSN: r.Uint32() & mask24, QKey: r.Uint32(), Responder: u8(8), Initiator: u8(8),
			RemoteResponse: u8(5), LocalResponse: u8(5), Transport: u8(2), FlowControl: r.IntN(2) == 1, Retries: u8(3), RNRRetries: u8(3), PKey: uint16(r.Uint32()),
			MTU: rdma.MTU(u8(4)), CMRetries: u8(4), Shared: r.IntN(2) == 1, Extended: u8(3),
			Primary: Path{LocalLID: uint16(r.Uint32()), RemoteLID: uint16(r.Uint32()), FlowLabel: r.Uint32() & 0xfffff, Rate: u8(6), TrafficClass: u8(8), HopLimit: u8(8), SL: u8(4),
				SubnetLocal: r.IntN(2) == 1, AckTimeout: u8(5)}}
		copy(m.Request.Primary.Local[:], private)
		copy(m.Request.Primary.Remote[:], private[16:])
	case REP:
		m.Reply = Reply{QKey: r.Uint32(), QPN: r.Uint32() & mask24, PSN: r.Uint32() & mask24, Responder: u8(8), Initiator: u8(8), AckDelay: u8(5), Failover: u8(2),
			FlowControl: r.IntN(2) == 1, RNRRetries: u8(3), Shared: r.IntN(2) == 1, GUID: r.Uint64()}
	case MRA:
		m.About, m.Timeout = About(u8(2)), u8(5)
	case REJ:
		m.About, m.Reason, m.InfoBytes = About(u8(2)), uint16(r.Uint32()), u8(6)
		copy(m.Info[:m.InfoBytes], private)
	case DREQ:
		m.RemoteQPN = r.Uint32() & mask24
	case SIDRREQ:
		m.ServiceID = r.Uint64()
	case SIDRREP:
		m.Status, m.ServiceID = u8(8), r.Uint64()
	}
	return m
}

// TestThereAndBack: no field overlaps another, and Decode returns every field that Encode wrote.
func TestThereAndBack(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for k := REQ; k <= SIDRREP; k++ {
		for range 100 {
			m := sample(k, r)
			var b [Size]byte
			m.Encode(&b)
			var back Message
			if why := back.Decode(b[:]); why != WellFormed || !reflect.DeepEqual(m, back) {
				t.Fatalf("%v\n%+v is\n%+v", why, m, back)
			}
		}
	}
}

func TestMalformed(t *testing.T) {
	var b [Size]byte
	(&Message{Kind: RTU}).Encode(&b)
	for want, change := range map[Malformed]func(b []byte) []byte{
		Length:    func(b []byte) []byte { return b[:Size-1] },
		Version:   func(b []byte) []byte { b[2] = 1; return b },
		Class:     func(b []byte) []byte { b[1] = 3; return b },
		Method:    func(b []byte) []byte { b[3] = 1; return b },
		Attribute: func(b []byte) []byte { b[17] = 0x19; return b },
	} {
		var m Message
		if why := m.Decode(change(bytes.Clone(b[:]))); why != want {
			t.Errorf("%v, not %v", why, want)
		}
	}
	if len(malformedNames) != int(Reasons) || Kind(0x1f).String() != "other" || REP.String() != "rep" {
		t.Error("names")
	}
}

func TestAddress(t *testing.T) {
	for _, c := range []struct{ from, to string }{{"10.0.0.1:40000", "10.0.0.2"}, {"[fd77::1]:1", "fd77::2"}} {
		a := Address{netip.MustParseAddrPort(c.from), netip.MustParseAddr(c.to)}
		b := a.Append(nil)
		if back, ok := DecodeAddress(b); len(b) != AddressBytes || !ok || back != a {
			t.Errorf("%v is %v, %v", a, back, ok)
		}
		b[1] = 0x50
		if _, ok := DecodeAddress(b); ok {
			t.Error("version 5")
		}
		if _, ok := DecodeAddress(b[:35]); ok {
			t.Error("35 bytes")
		}
	}
	if p, ok := PortOf(ServiceID(7174)); p != 7174 || !ok {
		t.Error(p)
	}
	if _, ok := PortOf(0x01110000 | 7174); ok {
		t.Error("a service of UDP")
	}
}

// TestAckTimeout: AckTimeout returns the values of the kernel's function.
func TestAckTimeout(t *testing.T) {
	for _, c := range []struct{ delay, lifetime, want uint8 }{{0, 16, 17}, {15, 16, 17}, {16, 16, 18}, {17, 16, 18}, {18, 16, 19}, {20, 16, 20}, {31, 31, 31}, {0, 0, 2}} {
		if got := AckTimeout(c.delay, c.lifetime); got != c.want {
			t.Errorf("delay %d and lifetime %d are %d, not %d", c.delay, c.lifetime, got, c.want)
		}
	}
	if Duration(20) != 4294967296*time.Nanosecond || Duration(0) != 4096*time.Nanosecond {
		t.Error(Duration(20))
	}
}

// FuzzDecode: Encode writes every message that Decode accepts, and Decode reads the same message
// back.
func FuzzDecode(f *testing.F) {
	r := rand.New(rand.NewPCG(3, 4))
	for k := REQ; k <= SIDRREP; k++ {
		m := sample(k, r)
		var b [Size]byte
		m.Encode(&b)
		f.Add(b[:])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var m, back Message
		if m.Decode(b) != WellFormed {
			return
		}
		var again [Size]byte
		m.Request.Alternate = false // Decode reads it, and Encode does not write it
		m.Encode(&again)
		if why := back.Decode(again[:]); why != WellFormed || !reflect.DeepEqual(m, back) {
			t.Fatalf("%v\n%+v is\n%+v", why, m, back)
		}
		if a, ok := DecodeAddress(m.Private); ok {
			if got, ok := DecodeAddress(a.Append(nil)); !ok || got != a {
				t.Fatalf("%v is %v", a, got)
			}
		}
	})
}
