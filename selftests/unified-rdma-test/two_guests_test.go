package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma"
)

// The wire between two guests (docs/background/testing.md). The tests signal their beginning and end to each other
// over a separate port.
const (
	wireCard   = "link0"
	wireMTU    = 4200
	wireServer = "10.78.0.2"
	wirePort   = ":18600"
)

// TestBetweenGuests: all operations work between two guests. make test-long SUITE=guests runs it in both guests
// of a pair, and nothing else does. The second guest has the server.
func TestBetweenGuests(t *testing.T) {
	labenv.Guest(t)
	host := os.Getenv("UNIFIEDD_LAB_HOST")
	link, err := netlink.LinkByName(wireCard)
	if err == nil {
		err = netlink.LinkSetMTU(link, wireMTU)
	}
	testenv.Mustf(t, err, "set up the wire between two guests, of which this is %q", host)
	p := softRoCE(wireCard, labenv.SoftRoCE(t, wireCard))
	p.server, p.mtu = wireServer, 4096
	t.Cleanup(func() { labenv.RDMAAtRest(t, p.device) })
	if host == "2" {
		servesGuest(t, p)
	} else {
		asksGuest(t, p)
	}
}

// servesGuest serves until the other guest is done.
func servesGuest(t *testing.T, p place) {
	s := p.serveOn(t, p.asServer("-keep -force -timeout 30s", labenv.Disk)...)
	l, err := net.Listen("tcp", wireServer+wirePort)
	testenv.Must(t, err)
	defer l.Close()
	conn, err := l.Accept()
	if err == nil {
		fallsSilent(t, s, p)
		_, err = io.ReadAll(conn) // until the other guest closes the connection
	}
	testenv.Checkf(t, err, "wait for the other guest")
	if status := s.ended(); status != 0 || s.Errs.String() != "" {
		t.Errorf("the server ends with %d: %s%s", status, &s.Out, &s.Errs)
	}
	t.Log(s.Out.String())
}

// fallsSilent loses all packets of an endless test for a while, by another MAC address of the card.
// If the card were down, the emulator would keep the packets. And Linux 6.1 would not count retries
// of packets that it cannot send.
func fallsSilent(t *testing.T, s *server, p place) {
	testenv.Wait(t, 10*time.Minute, "the endless test", func() bool { return strings.Contains(s.Out.String(), strconv.Itoa(endless)) })
	time.Sleep(time.Second)
	link, err := netlink.LinkByName(p.card)
	testenv.Must(t, err)
	own := link.Attrs().HardwareAddr
	another := slices.Clone(own)
	another[5] ^= 0x55
	err = netlink.LinkSetHardwareAddr(link, another)
	time.Sleep(5 * time.Second)
	testenv.Checkf(t, errors.Join(err, netlink.LinkSetHardwareAddr(link, own)), "give %s another address", p.card)
}

// asksGuest is the client's side.
func asksGuest(t *testing.T, p place) {
	var conn net.Conn
	testenv.Wait(t, 30*time.Second, "the server in the other guest", func() bool {
		var err error
		conn, err = net.DialTimeout("tcp", wireServer+wirePort, 5*time.Second)
		return err == nil
	})
	defer conn.Close()
	begin := time.Now()
	n := matrix(t, p, transports...)
	t.Logf("%d runs took %v", n, time.Since(begin).Round(time.Second))
	for _, options := range []string{"-n 200 -size 65536", "-test latency -op send", "-test latency -op write", "-test latency -op read", "-test latency -op fetch-add",
		"-test bandwidth -op write -size 4096", "-test bandwidth -op read -size 65536"} {
		t.Logf("%s\n%s", options, p.asked(t, p.asClient("-timeout 30s "+options)...))
	}
	// The other guest loses all packets for a while, and then receives again.
	begin = time.Now()
	status, out, errs := p.askFor(t, p.asClient(fmt.Sprintf("-qp-timeout 16 -timeout 30s -test bandwidth -op write -size 4096 -n %d", endless))...)
	if took := time.Since(begin); status != 1 || !strings.Contains(errs, rdma.RetryExceeded.String()) || took > testenv.Within(20*time.Second) {
		t.Errorf("a peer that is silent: status %d after %v, %s%s", status, took, out, errs)
	}
	testenv.Wait(t, 30*time.Second, "the other guest to be back", func() bool {
		status, _, _ := p.askFor(t, p.asClient("-test verify -n 10")...)
		return status == 0
	})
}
