package flows

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/blocks"
	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/authority"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/connect"
	"github.com/unifiedd/unifiedd/umem"
)

// identify makes a certificate for a host with that address, and loads it.
func identify(t *testing.T, a *authority.Authority, name string, ip netip.Addr, trusted *authority.Authority) (config string, c *connect.Credentials) {
	t.Helper()
	certificate, key := a.Issue(t, name, func(c *x509.Certificate) { c.IPAddresses = []net.IP{ip.AsSlice()} })
	c, err := connect.LoadCredentials(certificate, key, trusted.File())
	testenv.Must(t, err)
	return fmt.Sprintf("tls: {certificate: %s, key: %s, authority: %s}\n", certificate, key, trusted.File()), c
}

// TestIdentity: with certificates, a log accepts messages only from the clients that it allows, and a flow of
// blocks serves only the readers that it allows. All others are refused with the reason, and counted.
func TestIdentity(t *testing.T) {
	l := newRDMALab(t)
	ours, others := authority.New(t), authority.New(t)
	tls, _ := identify(t, ours, "server", l.B.IP, ours)
	disk := l.dir + "/blocks"
	testenv.Must(t, os.WriteFile(disk, make([]byte, 1<<20), 0o600))
	text := strings.Replace(l.logConfig("acknowledge: durable", ", allow: [orders]"), "extents: 12", "extents: 40", 1)
	d := l.start(t, tls+text+fmt.Sprintf(`
  - name: serve
    from: {file: %s}
    to: {rdma: "roce:%s", listen: "%s:7472", window: 2, clients: 2, transfer: 4KiB, cache: 64KiB, allow: [reader]}
`, disk, l.B.Ifname, l.B.IP), Options{})
	s := l.newStation(t)
	_, orders := identify(t, ours, "orders", l.A.IP, ours)
	_, reader := identify(t, ours, "reader", l.A.IP, ours)
	_, mallory := identify(t, others, "orders", l.A.IP, ours)

	good := s.newClientAs(t, orders, 1, l.address(), "wal", 100)
	good.send(50)
	good.settle(t)
	for why, who := range map[string]*connect.Credentials{
		`"reader" is not among those allowed`: reader, // of our authority
		"certificate":                         mallory,
		"TLS is wanted here":                  nil,
	} {
		bad := s.newClientAs(t, who, 2, l.address(), "wal", 100)
		bad.send(1)
		testenv.Wait(t, 20*time.Second, "a refusal that says: "+why, func() bool { return strings.Contains(bad.Stats().Cause, why) })
		bad.stop()
	}
	log, serve := d.Flows()[0], d.Flows()[1]
	st := await(t, log, "what was refused", func(s status.Flow) bool {
		return s.Receives.Handshakes["tls"] >= 2 && s.Receives.Refused["not_permitted"] >= 1
	})
	if !st.Receives.TLS || len(st.Receives.Clients) != 1 || st.Receives.Clients[0].Name != "orders" || st.Packets != 50 {
		t.Errorf("the log's status is %+v, with %d messages", st.Receives, st.Packets)
	}
	if err := s.dial(t, l.B.IP, reader); err != nil {
		t.Errorf("who is allowed to: %v", err)
	}
	if err := s.dial(t, l.B.IP, orders); err == nil || !strings.Contains(err.Error(), `"orders" is not among those allowed`) {
		t.Errorf("who is not allowed to: %v", err)
	}
	if st := serve.Status(); !st.Blocks.TLS || st.Blocks.TurnedAway["not_permitted"] != 1 {
		t.Errorf("the status of blocks is %+v", st.Blocks)
	}
	testenv.Must(t, log.Stop())
	l.logged(t, good)
}

// dial connects to the flow of blocks, and closes the connection.
func (s *station) dial(t *testing.T, to netip.Addr, who *connect.Credentials) (err error) {
	t.Helper()
	book := s.region.NewBook("blocks")
	defer func() { testenv.Check(t, book.Close()) }()
	hands, err := book.NewHolder(umem.OwnerWorker, "blocks")
	testenv.Must(t, err)
	defer hands.Close()
	s.lab.A.Do(t, func() {
		var c *blocks.Client
		c, err = blocks.Dial(t.Context(), blocks.ClientConfig{Name: "blocks", Endpoint: s.endpoint, Worker: hands,
			Address: fmt.Sprintf("%s:7472", to), Connect: connect.Config{Credentials: who}})
		if err == nil {
			err = c.Close()
		}
	})
	return err
}

// TestSessionOfAnother: a session keeps its owner when the flow starts again. A client with another
// certificate cannot continue it.
func TestSessionOfAnother(t *testing.T) {
	l := newRDMALab(t)
	a := authority.New(t)
	tls, _ := identify(t, a, "server", l.B.IP, a)
	log := l.start(t, tls+l.logConfig("acknowledge: durable", ""), Options{}).Flows()[0]
	s := l.newStation(t)
	_, alice := identify(t, a, "alice", l.A.IP, a)
	_, mallory := identify(t, a, "mallory", l.A.IP, a)
	good := s.newClientAs(t, alice, 1, l.address(), "wal", 100)
	good.send(20)
	good.settle(t)
	var session uint64
	if _, err := fmt.Sscanf(log.Status().Receives.Clients[0].Session, "%x", &session); err != nil {
		t.Fatal(err)
	}
	comes := func(who *connect.Credentials) (next uint64, err error) {
		t.Helper()
		hello, err := (&protocol.Hello{Role: protocol.RoleAppend, Flow: "wal", Message: 4096, Session: session, Next: 21}).Append(nil)
		testenv.Must(t, err)
		l.A.Do(t, func() {
			var conn *connect.Conn
			conn, err = connect.Dial(context.Background(), l.address(), connect.End{Elsewhere: true, Hello: hello,
				Parameters: connect.Parameters{Transport: rdma.RC, QPN: 17, MTU: rdma.MTU1024, GID: rdma.GIDOf(l.A.IP)}}, connect.Config{Credentials: who})
			if err != nil {
				return
			}
			var h protocol.Hello
			h, err = protocol.ParseHello(conn.Remote().Hello)
			next, err = h.Next, errors.Join(err, conn.Close())
		})
		return next, err
	}
	refused := func() {
		t.Helper()
		if _, err := comes(mallory); connect.ReasonOf(err) != connect.ReasonRefused || !strings.Contains(err.Error(), "the session was begun by another") {
			t.Errorf("the session is another's: %v", err)
		}
	}
	refused()
	good.stop()
	testenv.Must(t, log.Stop())
	l.begin(t, log.Start)
	refused()
	if next, err := comes(alice); next != 21 || err != nil {
		t.Errorf("her own session goes on with %d, %v", next, err)
	}
	testenv.Must(t, log.Stop())
	entries := l.entries(t)
	for i, e := range entries {
		if e.Session != session || e.Sequence != uint64(i+1) || e.Owner != protocol.OwnerOf("alice") {
			t.Fatalf("record %d is %+v", i+1, e.Data)
		}
	}
	if len(entries) != 20 {
		t.Errorf("the log has %d records", len(entries))
	}
}
