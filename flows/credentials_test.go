package flows

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/authority"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/connect"
)

// TestReloadRevokesCertificate: a reload reads the authority's file again, and ends the sessions of clients
// whose certificates it no longer covers. Other sessions continue. A file without a certificate changes
// nothing.
func TestReloadRevokesCertificate(t *testing.T) {
	l := newRDMALab(t)
	ours, others := authority.New(t), authority.New(t)
	trusted := l.dir + "/authority.pem"
	trust := func(all ...*authority.Authority) {
		t.Helper()
		var text []byte
		for _, a := range all {
			one, err := os.ReadFile(a.File())
			testenv.Must(t, err)
			text = append(text, one...)
		}
		testenv.Must(t, os.WriteFile(trusted, text, 0o600))
	}
	trust(ours, others)
	tls, _ := identify(t, ours, "server", l.B.IP, ours)
	text := strings.Replace(tls, ours.File(), trusted, 1) + l.logConfig("acknowledge: durable", "")
	log := l.start(t, text, Options{}).Flows()[0]
	s := l.newStation(t)
	_, kept := identify(t, ours, "kept", l.A.IP, ours)
	_, gone := identify(t, others, "gone", l.A.IP, ours)
	a, b := s.newClientAs(t, kept, 1, l.address(), "wal", 100), s.newClientAs(t, gone, 2, l.address(), "wal", 100)
	a.send(20)
	a.settle(t)
	b.send(20)
	b.settle(t)
	if s, err := l.reload(t, text); err != nil || s.Outcome != status.Unchanged {
		t.Errorf("with the same files: %s, %v", s.Outcome, err)
	}

	testenv.Must(t, os.WriteFile(trusted, []byte("nothing\n"), 0o600))
	if s, err := l.reload(t, text); s.Outcome != status.Refused || err == nil || !strings.Contains(err.Error(), trusted) {
		t.Errorf("without a certificate in the file: %s, %v", s.Outcome, err)
	}
	b.send(20)
	b.settle(t)

	trust(ours)
	if s := l.reloaded(t, text); !slices.Equal(s.Plan.Credentials, []string{"tls"}) || s.Ended["tls"] != 1 || !slices.Equal(s.Plan.Kept, []string{"wal"}) {
		t.Errorf("the reload is %+v", s)
	}
	b.send(1)
	testenv.Wait(t, 20*time.Second, "a refusal", func() bool { return strings.Contains(b.Stats().Cause, "certificate") })
	a.send(20)
	a.settle(t)
	if st := log.Status(); st.Packets != 80 {
		t.Errorf("the log has %d messages", st.Packets)
	}
	for _, c := range log.Status().Receives.Clients {
		if (c.State == "connected") != (c.Name == "kept") {
			t.Errorf("client %s is %s: %s", c.Name, c.State, c.Error)
		}
	}
	b.stop()
}

// TestReloadReadsKeys: a reload reads the keys of NVMe hosts again, and reports the flows whose keys have
// changed. A file with a mistake changes nothing. With a file without keys, no host can connect.
// TestChangeOfKeys in package nvmet tests what happens to hosts.
func TestReloadReadsKeys(t *testing.T) {
	l := newLab(t, testenv.PairOptions{MTU: 4200})
	dir := testenv.DiskDir(t)
	const host, other = "nqn.2026-01.com.example:host", "nqn.2026-01.com.example:other"
	const key = " DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:\n"
	write := func(name, text string) string {
		t.Helper()
		testenv.Must(t, os.WriteFile(dir+"/"+name, []byte(text), 0o600))
		return dir + "/" + name
	}
	text := fmt.Sprintf(`
region: {size: 64MiB, extents: 16}
flows:
  - name: volume
    from: {file: %s}
    to: {rdma: "roce:%s", listen: "%s:4420", subsystem: nqn.2026-01.com.example:volume, keys: %s, clients: 4, window: 32}
`, write("disk", string(bytes.Repeat([]byte{0}, 1<<20))), l.B.Ifname, l.B.IP, write("keys", host+key+other+key))
	l.start(t, text, Options{})
	for _, c := range []struct {
		keys    string
		outcome status.Outcome
		says    string
	}{
		{"# two hosts\n" + other + key + host + key, status.Unchanged, ""},
		{host + key, status.Applied, ""},
		{host + " DHHC-1:00:nothing:\n", status.Refused, dir + "/keys:1"},
		{host + key, status.Unchanged, ""},
		{"", status.Applied, ""},
		{host + key, status.Applied, ""},
	} {
		write("keys", c.keys)
		s, err := l.reload(t, text)
		if s.Outcome != c.outcome || (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("keys %q: %s, %v", c.keys, s.Outcome, err)
		}
		if changed := slices.Equal(s.Plan.Credentials, []string{"volume"}); changed != (c.outcome == status.Applied) || len(s.Ended) > 0 != changed {
			t.Errorf("keys %q: %+v", c.keys, s)
		}
	}
}

// TestAwaitClosed: awaitClosed returns when the last connection is closed, and names one that stays
// open.
func TestAwaitClosed(t *testing.T) {
	l, err := connect.Listen(t.Context(), "127.0.0.1:0", connect.Config{})
	testenv.Must(t, err)
	defer l.Close()
	end := connect.End{Elsewhere: true, Parameters: connect.Parameters{Transport: rdma.RC, QPN: 17, MTU: rdma.MTU1024, GID: rdma.GIDOf(netip.MustParseAddr("127.0.0.1"))}}
	connected := func() *connect.Conn {
		accepted := make(chan *connect.Conn, 1)
		go func() {
			defer close(accepted)
			r, err := l.Accept(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			c, err := r.Accept(end)
			testenv.Check(t, err)
			accepted <- c
		}()
		testenv.Opened(t, func() (*connect.Conn, error) {
			return connect.Dial(t.Context(), l.Addr().String(), end, connect.Config{})
		})
		return <-accepted
	}
	conns := []*connect.Conn{connected(), connected()}
	closed := make(chan error, len(conns))
	go func() {
		for _, c := range conns {
			time.Sleep(20 * time.Millisecond)
			closed <- c.Close()
		}
	}()
	testenv.Check(t, awaitClosed(conns, time.Minute))
	for _, c := range conns {
		select {
		case <-c.Closed():
		default:
			t.Error("awaitClosed returned before a connection was closed")
		}
		testenv.Check(t, <-closed)
	}

	open := connected()
	defer open.Close()
	if err := awaitClosed([]*connect.Conn{open}, time.Millisecond); err == nil || !strings.Contains(err.Error(), open.Peer().Addr.String()) {
		t.Errorf("returned %v while a connection was open", err)
	}
}
