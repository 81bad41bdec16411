package mad

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/roce/wire"
)

// TestTshark: tshark, an independent decoder, reads each field where the specification has it.
// (Flow label and rate share four bytes. tshark reads them from three of these bytes and from the
// first. TestThereAndBack tests them.)
func TestTshark(t *testing.T) {
	local, remote := netip.MustParseAddr("10.77.0.1"), netip.MustParseAddr("10.77.0.2")
	address := Address{netip.AddrPortFrom(local, 40001), remote}
	messages := []Message{
		{Kind: REQ, Transaction: 0x1122334455667788, Local: 0xa1a2a3a4, Private: append(address.Append(nil), "hello"...), Request: Request{ServiceID: ServiceID(7174),
			GUID: 0xb1b2b3b4b5b6b7b8, QPN: 0xc1c2c3, PSN: 0xd1d2d3, Responder: 17, Initiator: 18, RemoteResponse: 19, LocalResponse: 20, Retries: 6, RNRRetries: 5, PKey: 0xffff,
			MTU: rdma.MTU1024, CMRetries: 15, Shared: true, Primary: Path{LocalLID: 0xffff, RemoteLID: 0xfffe, Local: rdma.GIDOf(local), Remote: rdma.GIDOf(remote),
				FlowLabel: 0xe1e2e, Rate: 3, TrafficClass: 0x68, HopLimit: 64, SL: 9, AckTimeout: 17}}},
		{Kind: REP, Local: 0xa1a2a3a4, Remote: 0xb1b2b3b4, Reply: Reply{QPN: 0xc1c2c3, PSN: 0xd1d2d3, Responder: 17, Initiator: 18, AckDelay: 15, Failover: 1, RNRRetries: 7, Shared: true,
			GUID: 0xe1e2e3e4e5e6e7e8}},
		{Kind: RTU, Local: 0xa1a2a3a4, Remote: 0xb1b2b3b4},
		{Kind: REJ, Local: 0xa1a2a3a4, Remote: 0xb1b2b3b4, About: AboutREP, Reason: 28, InfoBytes: 5},
		{Kind: DREQ, Local: 0xa1a2a3a4, Remote: 0xb1b2b3b4, RemoteQPN: 0xc1c2c3},
		{Kind: DREP, Local: 0xa1a2a3a4, Remote: 0xb1b2b3b4},
	}
	wants := []string{
		"req=0xa1a2a3a4 req.serviceid.dport=0x1c06 req.localcaguid=0xb1b2b3b4b5b6b7b8 req.localqpn=0xc1c2c3 req.responderres=0x11 req.initdepth=0x12 req.remoteresptout=0x13 " +
			"req.localresptout=0x14 req.startpsn=0xd1d2d3 req.retrcount=0x06 req.rnrretrcount=0x05 req.pkey=0xffff req.pppmtu=0x03 req.maxcmretr=0x0f req.srq=1|True|0x01 " +
			"req.prim_locallid=65535 req.prim_remotelid=65534 req.prim_tfcclass=0x68 req.prim_hoplim=0x40 req.prim_sl=0x09 " +
			"req.prim_localacktout=0x11 req.ip_cm.ipv=0x04 req.ip_cm.sport=0x9c41 req.ip_cm.sip4=10.77.0.1 req.ip_cm.dip4=10.77.0.2",
		"rep=0xa1a2a3a4 rep.remotecommid=0xb1b2b3b4 rep.localqpn=0xc1c2c3 rep.startpsn=0xd1d2d3 rep.respres=0x11 rep.initdepth=0x12 rep.tgtackdelay=0x0f rep.failoveracc=0x01 " +
			"rep.rnrretrcount=0x07 rep.srq=1|True|0x01 rep.localcaguid=0xe1e2e3e4e5e6e7e8",
		"rtu.localcommid=0xa1a2a3a4 rtu.remotecommid=0xb1b2b3b4",
		"rej.localcommid=0xa1a2a3a4 rej.remotecommid=0xb1b2b3b4 rej.msgrej=0x01 rej.rejinfolen=0x05 rej.reason=0x001c",
		"dreq.localcommid=0xa1a2a3a4 dreq.remotecommid=0xb1b2b3b4 req.remoteqpneecn=0xc1c2c3",
		"drsp.localcommid=0xa1a2a3a4 drsp.remotecommid=0xb1b2b3b4",
	}
	capture := newCapture()
	for i := range messages {
		capture.add(t, local, remote, &messages[i])
	}
	for i, want := range wants {
		for _, one := range strings.Fields(want) {
			name, values, _ := strings.Cut(one, "=")
			got := capture.read(t, name)
			if len(got) != len(messages) || !strings.Contains("|"+values+"|", "|"+got[i]+"|") {
				t.Errorf("%v: tshark reads %s as %q, not %s", messages[i].Kind, name, got, values)
			}
		}
	}
}

// capture has packets in the format of libpcap, and the fields that tshark reads from them.
type capture struct {
	bytes  []byte
	fields map[string][]string
}

func newCapture() *capture {
	le := binary.LittleEndian
	b := le.AppendUint16(le.AppendUint16(le.AppendUint32(nil, 0xa1b2c3d4), 2), 4)
	return &capture{bytes: le.AppendUint32(le.AppendUint32(append(b, make([]byte, 8)...), 1<<16), 1)}
}

// add puts a message into a packet of RoCE v2.
func (c *capture) add(t *testing.T, from, to netip.Addr, m *Message) {
	p := wire.Path{Source: rdma.GIDOf(from), Destination: rdma.GIDOf(to), SourcePort: 0xc000, HopLimit: 64}
	template, err := wire.NewTemplate(&p)
	testenv.Must(t, err)
	h := wire.Header{Opcode: wire.UDSendOnly, PKey: 0xffff, DestQPN: QueuePair, QKey: QKey, SourceQPN: QueuePair}
	b := make([]byte, 512)
	n := template.Put(b, 1, h.Opcode.HeaderBytes()+Size+wire.ICRCBytes)
	n += h.Encode(b[n:])
	var message [Size]byte
	m.Encode(&message)
	n += copy(b[n:], message[:])
	n += wire.Begin(b[template.Network():n]).Finish(b[n:], 0)
	le := binary.LittleEndian
	c.bytes = le.AppendUint32(le.AppendUint32(append(c.bytes, make([]byte, 8)...), uint32(n)), uint32(n))
	c.bytes = append(c.bytes, b[:n]...)
}

// read returns a field of each packet, empty for packets without it.
func (c *capture) read(t *testing.T, name string) []string {
	t.Helper()
	if c.fields == nil {
		c.readAll(t)
	}
	return c.fields[name]
}

// all has the fields of infiniband.cm that the test compares.
const all = `req req.serviceid.dport req.localcaguid req.localqpn req.responderres req.initdepth req.remoteresptout req.localresptout req.startpsn req.retrcount req.rnrretrcount
	req.pkey req.pppmtu req.maxcmretr req.srq req.prim_locallid req.prim_remotelid req.prim_tfcclass req.prim_hoplim req.prim_sl
	req.prim_localacktout req.ip_cm.ipv req.ip_cm.sport req.ip_cm.sip4 req.ip_cm.dip4 rep rep.remotecommid rep.localqpn rep.startpsn rep.respres rep.initdepth rep.tgtackdelay
	rep.failoveracc rep.rnrretrcount rep.srq rep.localcaguid rtu.localcommid rtu.remotecommid rej.localcommid rej.remotecommid rej.msgrej rej.rejinfolen rej.reason
	dreq.localcommid dreq.remotecommid req.remoteqpneecn drsp.localcommid drsp.remotecommid`

func (c *capture) readAll(t *testing.T) {
	t.Helper()
	names := strings.Fields(all)
	args := []string{"-n", "-r", "-", "-T", "fields"}
	for _, name := range names {
		args = append(args, "-e", "infiniband.cm."+name)
	}
	cmd := exec.Command(testenv.Tool(t, "tshark"), args...)
	cmd.Stdin = bytes.NewReader(c.bytes)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(fmt.Errorf("tshark: %w\n%s", err, out))
	}
	c.fields = map[string][]string{}
	for line := range strings.Lines(string(out)) {
		for i, value := range strings.Split(strings.TrimSuffix(line, "\n"), "\t") {
			c.fields[names[i]] = append(c.fields[names[i]], value)
		}
	}
}
