package doctor

import (
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/roce/network"
)

// TestRoCE: an interface with addresses can have RoCE in software, one without cannot, and the
// doctor reports another program's socket.
func TestRoCE(t *testing.T) {
	p := testenv.NewPair(t, testenv.PairOptions{IPv6: true})
	subject := "interface " + p.A.Ifname
	c := of(t, onPair(t, p, Options{}), subject, "RoCE in software")
	expect(t, "addresses", c, OK, "roce:"+p.A.Ifname+", 1024 bytes in a packet")
	expect(t, "MTU", c, OK, "ip link set dev "+p.A.Ifname+" mtu 4176")
	for _, address := range []string{p.A.IP.String(), p.A.IP6.String()} {
		if !strings.Contains(c.Detail, address) {
			t.Errorf("no %s in %q", address, c.Detail)
		}
	}
	expect(t, "port", of(t, onPair(t, p, Options{}), subject, "UDP port 4791"), OK, "no program")

	var socket net.PacketConn
	var err error
	p.A.Do(t, func() { socket, err = net.ListenPacket("udp4", ":4791") })
	testenv.Must(t, err)
	defer socket.Close()
	expect(t, "socket", of(t, onPair(t, p, Options{}), subject, "UDP port 4791"), Warn, "ss -ulnp sport = :4791")
}

func TestRoCEWithoutAddress(t *testing.T) {
	p := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true, MTU: 9000})
	c := of(t, onPair(t, p, Options{}), "interface "+p.A.Ifname, "RoCE in software")
	expect(t, "no address", c, OK, "not without an IP address -> ip address add ADDRESS/LENGTH dev "+p.A.Ifname)
}

func TestJudgeRoCE(t *testing.T) {
	gids := roceFacts{gids: []rdma.GIDEntry{{Index: 1, Type: rdma.RoCE2, GID: mustGID("10.0.0.1")}}}
	at := func(mtu int, attached bool) card {
		return card{LinkAttrs: &netlink.LinkAttrs{Name: "eth0", MTU: mtu, Xdp: &netlink.LinkXdp{Attached: attached}}, bad: Warn}
	}
	expect(t, "long packets", at(9000, false).judgeRoCE(gids), OK, "4096 bytes in a packet; GID 1 10.0.0.1")
	if c := at(roceMTU, false).judgeRoCE(gids); c.Remedy != "" || !strings.Contains(c.Detail, "4096 bytes") {
		t.Errorf("an MTU of %d gives %+v", roceMTU, c)
	}
	expect(t, "short packets", at(roceMTU-1, false).judgeRoCE(gids), OK, "2048 bytes in a packet")
	expect(t, "shortest packets", at(256, false).judgeRoCE(gids), OK, "not with an MTU of 256")
	expect(t, "program", at(1500, true).judgeRoCE(gids), OK, "see XDP program")
	expect(t, "tunnel", at(1500, false).judgeRoCE(roceFacts{err: network.ErrNotEthernet}), OK, "not Ethernet's")
	expect(t, "unreadable", at(1500, false).judgeRoCE(roceFacts{err: errors.New("no netlink")}), Unknown, "no netlink")

	rxe := roceFacts{others: "rxe0", sockets: true}
	expect(t, "Soft-RoCE", at(1500, false).judgePort(rxe), OK, "rdma link delete rxe0")
	asked := at(1500, false)
	asked.bad = Fail
	expect(t, "Soft-RoCE where the user asks", asked.judgePort(rxe), Warn, "use rxe0 instead of roce:eth0")
}
