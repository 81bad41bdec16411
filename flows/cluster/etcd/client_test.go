package etcd

import (
	"context"
	"crypto/x509"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/unifiedd/unifiedd/flows/cluster"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/authority"
	"github.com/unifiedd/unifiedd/internal/testenv/etcdserver"
)

// lease is that of the tests, the shortest that etcd grants.
const lease = 2 * time.Second

// member is a client with what it registers and knows.
type member struct {
	*Client
	names   *cluster.Names
	address atomic.Pointer[string]
}

func config(s *etcdserver.Server, name string) Config {
	return Config{Endpoints: []string{s.URL}, Prefix: "/test/", Name: name, Lease: lease}
}

// join registers a daemon with one flow at an address. It leaves at the end of the test.
func join(t testing.TB, c Config, address string) *member {
	t.Helper()
	m := &member{names: new(cluster.Names)}
	m.address.Store(&address)
	c.Names = m.names
	c.Record = func() cluster.Record {
		return cluster.Record{Version: "test", Flows: []cluster.Flow{{Name: "log", Kind: "rdma-storage", Addresses: []string{*m.address.Load()}}}}
	}
	var err error
	m.Client, err = Open(c)
	testenv.Must(t, err)
	t.Cleanup(func() { m.leave(t) })
	return m
}

func (m *member) leave(t testing.TB) {
	t.Helper()
	testenv.Check(t, m.Close())
}

func (m *member) state() cluster.State {
	s, _, _ := m.names.Status()
	return s
}

// is waits until the state of the member is so.
func (m *member) is(t testing.TB, what string, ok func(*cluster.State) bool) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("%s: %+v", m.config.Name, m.state())
		}
	}()
	testenv.Wait(t, 30*time.Second, what, func() bool {
		s := m.state()
		return ok(&s)
	})
}

func (m *member) registered(t testing.TB) {
	t.Helper()
	m.is(t, "the registration of "+m.config.Name, func(s *cluster.State) bool { return s.Registered && s.Up })
}

// finds waits until a place has an address, and returns how long that took.
func finds(t testing.TB, p *cluster.Place, address string) time.Duration {
	t.Helper()
	begun := time.Now()
	testenv.Wait(t, 30*time.Second, "the place to be "+address, func() bool {
		all, _, err := p.Addresses()
		return err == nil && len(all) == 1 && all[0] == address
	})
	return time.Since(begun)
}

func place(t testing.TB, m *member, peer string) *cluster.Place {
	t.Helper()
	p, err := m.names.Place(peer)
	testenv.Must(t, err)
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// TestRegister: daemons find one another, follow an address that changes, and keep the last one of a daemon that has
// left. One that takes a name waits until the other has left.
func TestRegister(t *testing.T) {
	testenv.OnMachine(t, "etcd")
	s := etcdserver.Start(t, etcdserver.Options{})
	a, b := join(t, config(s, "a"), "10.0.0.1:1"), join(t, config(s, "b"), "10.0.0.2:1")
	p := place(t, a, "b/log")
	finds(t, p, "10.0.0.2:1")
	moved := "10.0.0.3:1"
	b.address.Store(&moved)
	finds(t, p, moved)

	rival := join(t, config(s, "b"), "10.0.0.4:1")
	rival.is(t, "the name to be taken", func(s *cluster.State) bool { return s.Taken == b.Instance() && !s.Registered })
	if err := rival.state().Lacks; !strings.Contains(err, "another daemon is registered as b") {
		t.Errorf("the rival says %q", err)
	}
	finds(t, p, moved)
	b.leave(t)
	finds(t, p, "10.0.0.4:1")
	rival.registered(t)
	rival.leave(t)
	testenv.Wait(t, 10*time.Second, "the name to be gone", func() bool {
		_, names, _ := a.names.Status()
		return len(names) == 1 && !names[0].Gone.IsZero()
	})
	finds(t, p, "10.0.0.4:1")
}

// TestRemoved: a record that somebody removes is registered again, and one that somebody writes over is refused by
// others, who go on with the last good one.
func TestRemoved(t *testing.T) {
	testenv.OnMachine(t, "etcd")
	s := etcdserver.Start(t, etcdserver.Options{})
	a, b := join(t, config(s, "a"), "10.0.0.1:1"), join(t, config(s, "b"), "10.0.0.2:1")
	p := place(t, a, "b/log")
	finds(t, p, "10.0.0.2:1")
	b.registered(t)
	if _, err := a.client.Delete(t.Context(), b.key("b")); err != nil {
		t.Fatal(err)
	}
	b.is(t, "another registration", func(s *cluster.State) bool { return s.Counts[CountRegistered] == 2 && s.Registered })
	if _, err := a.client.Put(t.Context(), a.key("b"), `{"format":1,"protocol":1,"name":"b","flows":[{"name":"log","addresses":["evil.example:1"]}]}`); err != nil {
		t.Fatal(err)
	}
	testenv.Wait(t, 10*time.Second, "the record to be refused", func() bool {
		_, names, refused := a.names.Status()
		return refused[cluster.BadAddress] == 1 && names[0].Refused != ""
	})
	finds(t, p, "10.0.0.2:1")
	all, err := a.List(t.Context())
	if err != nil || len(all) != 2 || all[0].Refused != nil || all[1].Refused == nil {
		t.Errorf("the list is %+v, %v", all, err)
	}
}

// TestFull: a daemon finds and follows peers while etcd has no room for its own record.
func TestFull(t *testing.T) {
	testenv.OnMachine(t, "etcd")
	s := etcdserver.Start(t, etcdserver.Options{})
	b := join(t, config(s, "b"), "10.0.0.2:1")
	b.registered(t)
	full := &etcdserverpb.AlarmRequest{Action: etcdserverpb.AlarmRequest_ACTIVATE, Alarm: etcdserverpb.AlarmType_NOSPACE}
	status, err := b.client.Status(t.Context(), s.URL)
	testenv.Must(t, err)
	full.MemberID = status.Header.MemberId
	_, err = etcdserverpb.NewMaintenanceClient(b.client.ActiveConnection()).Alarm(t.Context(), full)
	testenv.Must(t, err)
	a := join(t, config(s, "a"), "10.0.0.1:1")
	a.is(t, "a refusal", func(s *cluster.State) bool { return !s.Registered && strings.Contains(s.Error, "space") })
	finds(t, place(t, a, "b/log"), "10.0.0.2:1")
	b.leave(t)
	testenv.Wait(t, 10*time.Second, "the peer to be gone", func() bool {
		_, names, _ := a.names.Status()
		return len(names) == 1 && !names[0].Gone.IsZero()
	})
}

// TestGone: while etcd is away what is known stays, and the state says so. When it is back, the daemons are registered
// again: under the same lease if that lives, and else under a new one, also if etcd has forgotten everything.
func TestGone(t *testing.T) {
	testenv.OnMachine(t, "etcd")
	testenv.Long(t, "leases have to end")
	s := etcdserver.Start(t, etcdserver.Options{})
	a, b := join(t, config(s, "a"), "10.0.0.1:1"), join(t, config(s, "b"), "10.0.0.2:1")
	p := place(t, a, "b/log")
	finds(t, p, "10.0.0.2:1")
	for round, c := range []struct {
		name         string
		away         time.Duration
		forgets, new bool
	}{{"for a moment", 0, false, false}, {"for longer than a lease", 3 * lease, false, true}, {"and forgets", 3 * lease, true, true}} {
		a.registered(t)
		b.registered(t)
		before := b.state().Counts[CountRegistered]
		s.Kill()
		if c.away > 0 {
			for _, m := range []*member{a, b} {
				m.is(t, "the state to say that etcd is away", func(s *cluster.State) bool { return !s.Up && strings.Contains(s.Error, "refused") })
			}
		}
		time.Sleep(c.away)
		finds(t, p, "10.0.0.2:1")
		if c.forgets {
			s.Forget(t)
		}
		s.Again(t)
		begun := time.Now()
		a.registered(t)
		b.is(t, "the registration "+c.name, func(s *cluster.State) bool {
			return s.Registered && s.Up && (!c.new || s.Counts[CountRegistered] > before)
		})
		t.Logf("etcd away %s: registered again after %v", c.name, time.Since(begun).Round(time.Millisecond))
		moved := "10.0.1." + string('1'+rune(round)) + ":1"
		b.address.Store(&moved)
		t.Logf("etcd away %s: an address that changes then is known after %v", c.name, finds(t, p, moved).Round(time.Millisecond))
		back := "10.0.0.2:1"
		b.address.Store(&back)
		finds(t, p, back)
	}
	if n := b.state().Counts[CountLeaseLost]; n == 0 {
		t.Error("no lease was lost")
	}
}

// TestHangs: an etcd that hangs is noticed, and one that goes on is used again.
func TestHangs(t *testing.T) {
	testenv.OnMachine(t, "etcd")
	testenv.Long(t, "leases have to end")
	s := etcdserver.Start(t, etcdserver.Options{})
	a := join(t, config(s, "a"), "10.0.0.1:1")
	a.registered(t)
	s.Stop()
	t.Cleanup(s.Continue)
	begun := time.Now()
	a.is(t, "the state to say that etcd is away", func(s *cluster.State) bool { return !s.Up })
	t.Logf("noticed after %v", time.Since(begun).Round(time.Millisecond))
	time.Sleep(2 * lease)
	s.Continue()
	begun = time.Now()
	a.registered(t)
	t.Logf("registered again after %v", time.Since(begun).Round(time.Millisecond))
}

// TestTLS: etcd that asks for certificates gets one, also another one that replaced it, and a client trusts no other
// authority.
func TestTLS(t *testing.T) {
	testenv.OnMachine(t, "etcd")
	ca, other := authority.New(t), authority.New(t)
	cert, key := ca.Issue(t, "etcd", func(c *x509.Certificate) {
		c.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
		c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	})
	s := etcdserver.Start(t, etcdserver.Options{Certificate: cert, Key: key, Authority: ca.File()})
	own, ownKey := ca.Issue(t, "daemon", func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} })
	c := config(s, "a")
	if _, err := Open(c); err == nil || !strings.Contains(err.Error(), "cluster.tls") {
		t.Errorf("https without TLS: %v", err)
	}
	c.TLS = Files{Authority: ca.File(), Certificate: own, Key: ownKey}
	join(t, c, "10.0.0.1:1").registered(t)
	h, err := Probe(t.Context(), c, s.URL)
	if err != nil || !h.Leader || h.Version == "" || h.Clock.Abs() > 2*time.Second {
		t.Errorf("the probe says %+v, %v", h, err)
	}
	t.Logf("etcd is %+v", h)

	c.Name, c.TLS = "b", Files{Authority: other.File(), Certificate: own, Key: ownKey}
	join(t, c, "10.0.0.2:1").is(t, "an error about the authority", func(s *cluster.State) bool { return strings.Contains(s.Error, "unknown authority") })
	c.Name, c.TLS = "c", Files{Authority: ca.File()}
	join(t, c, "10.0.0.3:1").is(t, "an error about the missing certificate", func(s *cluster.State) bool { return !s.Up && strings.Contains(s.Error, "certificate") })
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if _, err := Probe(ctx, c, s.URL); err == nil {
		t.Error("a probe without a certificate succeeds")
	}
}

// TestUnfit: a daemon that others would refuse is not registered, and says why.
func TestUnfit(t *testing.T) {
	testenv.OnMachine(t, "etcd")
	s := etcdserver.Start(t, etcdserver.Options{})
	a := join(t, config(s, "a"), "storage.example:1")
	a.is(t, "an error", func(s *cluster.State) bool {
		return s.Up && !s.Registered && strings.Contains(s.Lacks, string(cluster.BadAddress))
	})
	good := "10.0.0.1:1"
	a.address.Store(&good)
	a.registered(t)
}

// TestEndpoints: one endpoint of several that does not answer is no harm.
func TestEndpoints(t *testing.T) {
	testenv.OnMachine(t, "etcd")
	dead, live := etcdserver.Start(t, etcdserver.Options{}), etcdserver.Start(t, etcdserver.Options{})
	dead.Kill()
	c := config(live, "a")
	c.Endpoints = []string{dead.URL, live.URL}
	a := join(t, c, "10.0.0.1:1")
	a.registered(t)
	if s := a.state(); s.Counts[CountFailed] > 0 {
		t.Errorf("requests failed: %+v", s)
	}
	live.Kill()
	a.is(t, "the state to say that etcd is away", func(s *cluster.State) bool { return !s.Up })
	live.Again(t)
	a.registered(t)
}
