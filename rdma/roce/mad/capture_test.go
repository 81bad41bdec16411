package mad

import (
	"bytes"
	"net/netip"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/gopacket/gopacket/pcapgo"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/roce/wire"
)

// seen is a message from a kernel, and the packet that contained it.
type seen struct {
	bytes    []byte
	from, to netip.Addr
	message  Message
}

// kernelMessages returns the messages between two hosts with Soft-RoCE (package wire's
// testdata/README.md).
func kernelMessages(t *testing.T) (all []seen) {
	t.Helper()
	f, err := os.Open("../wire/testdata/two-hosts.pcap")
	testenv.Must(t, err)
	defer f.Close()
	r, err := pcapgo.NewReader(f)
	testenv.Must(t, err)
	for {
		frame, _, err := r.ReadPacketData()
		if err != nil {
			return all
		}
		var e wire.Envelope
		var h wire.Header
		if e.Parse(frame, len(frame)) != wire.WellFormed {
			t.Fatalf("packet % x", frame)
		}
		transport := frame[e.Transport:][:e.Length]
		n, _ := h.Decode(transport)
		if h.DestQPN != QueuePair {
			continue
		}
		if h.Opcode != wire.UDSendOnly || h.QKey != QKey || h.SourceQPN != QueuePair {
			t.Errorf("to queue pair 1 goes %v with Q_Key %#x from %d", h.Opcode, h.QKey, h.SourceQPN)
		}
		s := seen{bytes: transport[n : e.Length-wire.ICRCBytes], from: e.Source.Addr(), to: e.Destination.Addr()}
		if why := s.message.Decode(s.bytes); why != WellFormed {
			t.Fatalf("%v: % x", why, s.bytes)
		}
		all = append(all, s)
	}
}

// TestKernelMessages: Decode understands the messages of two kernels, and Encode writes the same
// bytes.
func TestKernelMessages(t *testing.T) {
	all := kernelMessages(t)
	var order []string
	for i := range all {
		s := &all[i]
		order = append(order, s.message.Kind.String())
		var again [Size]byte
		s.message.Encode(&again)
		if !bytes.Equal(again[:], s.bytes) {
			t.Errorf("message %d, %v, is written as\n% x\nand was\n% x", i, s.message.Kind, again, s.bytes)
		}
	}
	// Two connections, which both sides end at the same time, and one more.
	const want = "req rep rtu req rep rtu dreq drep dreq dreq drep drep req rep rtu dreq drep"
	if got := strings.Join(order, " "); got != want {
		t.Errorf("%s\nare not\n%s", got, want)
	}
}

// TestKernelConnects: Decode returns the values that tshark reads from the first connection.
func TestKernelConnects(t *testing.T) {
	all := kernelMessages(t)
	a, b := netip.MustParseAddr("10.77.0.1"), netip.MustParseAddr("10.77.0.2")
	req, rep, rtu := all[0], all[1], all[2]
	if req.from != b || req.to != a || rep.from != a || rep.to != b || rtu.from != b {
		t.Errorf("from %v to %v, from %v to %v, from %v", req.from, req.to, rep.from, rep.to, rtu.from)
	}
	const transaction = 0x29590fbaf
	asked := Message{Kind: REQ, Transaction: transaction, Local: 0xaffb9095, Private: req.message.Private, Request: Request{
		ServiceID: ServiceID(18515), GUID: 0x505400fffe000002, QPN: 0x1c, PSN: 0xe45e15, RemoteResponse: 20, LocalResponse: 20, Retries: 7, RNRRetries: 7, PKey: 0xffff,
		MTU: rdma.MTU4096, CMRetries: 15, Primary: Path{LocalLID: 0xffff, RemoteLID: 0xffff, Local: rdma.GIDOf(b), Remote: rdma.GIDOf(a), FlowLabel: req.message.Request.Primary.FlowLabel,
			Rate: req.message.Request.Primary.Rate, HopLimit: 64, AckTimeout: 19}}}
	if !reflect.DeepEqual(req.message, asked) {
		t.Errorf("%+v is not\n%+v", req.message, asked)
	}
	if at, ok := DecodeAddress(req.message.Private); !ok || at.From != netip.AddrPortFrom(b, 0x9dfb) || at.To != a {
		t.Errorf("address %+v, %v", at, ok)
	}
	answered := Message{Kind: REP, Transaction: transaction, Local: 0x0dabf511, Remote: 0xaffb9095, Private: rep.message.Private,
		Reply: Reply{QPN: 0x1c, PSN: 0xde7019, AckDelay: 15, RNRRetries: 7, GUID: 0x505400fffe000001}}
	if !reflect.DeepEqual(rep.message, answered) {
		t.Errorf("%+v is not\n%+v", rep.message, answered)
	}
	if m := &rtu.message; m.Local != 0xaffb9095 || m.Remote != 0x0dabf511 || m.Transaction != transaction {
		t.Errorf("%+v", m)
	}
}
