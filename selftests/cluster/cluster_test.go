package cluster

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/authority"
	"github.com/unifiedd/unifiedd/internal/testenv/etcdserver"
	"github.com/unifiedd/unifiedd/selftests/daemon"
)

// TestRegister: daemons register themselves and find one another, `unifiedd cluster status` lists them, and a name that
// another daemon has is refused.
func TestRegister(t *testing.T) {
	testenv.Leaks(t)
	r := newRig(t, 4)
	sink, source := r.sink(2, "storage", ""), r.source("storage", "")
	r.reaches(source, r.at(2))
	r.registered(source)
	if says(t, source, []string{"registered as source in etcd, with a lease of 2s", "storage", r.at(2), "rdma-null", "roce:" + r.hosts[2].Ifname}, "cluster", "status") {
		t.Error("unifiedd cluster status fails while all is well")
	}
	var all status.Registry
	testenv.Wait(t, testenv.Within(10*time.Second), "both daemons to have written what they are", func() bool { // a daemon takes its name first
		all = status.Registry{}
		out, err := source.Control("cluster", "status", "--json")
		if jerr := json.Unmarshal([]byte(out), &all); err != nil || jerr != nil || len(all.Daemons) != 2 {
			t.Fatalf("the list is %s: %v, %v", out, err, jerr)
		}
		return len(all.Daemons[0].Devices) > 0 && len(all.Daemons[1].Flows) > 0
	})
	for i, name := range []string{"source", "storage"} {
		if d := all.Daemons[i]; d.Name != name || d.Version == "" || d.Instance == "" || len(d.Devices) != 1 || len(d.Devices[0].GIDs) == 0 {
			t.Errorf("daemon %d is %+v", i, d)
		}
	}
	if f := all.Daemons[1].Flows; len(f) != 1 || f[0].Name != "feed" || !slices.Contains(f[0].Addresses, r.at(2)) {
		t.Errorf("the flows of storage are %+v", f)
	}
	says(t, source, []string{"found as storage/feed; followed to another address 0 times", "registered as source"}, "status", "-o", "wide")

	rival := r.sink(3, "storage", "")
	rival.Until(t, "the name to be taken", func(s *status.Daemon) bool { return s.Cluster != nil && s.Cluster.Taken != "" && !s.Cluster.Registered })
	if !says(t, rival, []string{"another daemon is registered as storage", "cluster.name"}, "cluster", "status") {
		t.Error("unifiedd cluster status of a daemon without its name succeeds")
	}
	r.reaches(source, r.at(2))
	for _, d := range []*daemon.Daemon{rival, source, sink} {
		d.Terminate(t)
	}
}

// TestMove: when the peer's daemon is killed, and another one takes its name, the flow is there within two leases. When
// it leaves in order, it is there as soon as the other one is registered.
func TestMove(t *testing.T) {
	testenv.Leaks(t)
	r := newRig(t, 4)
	r.lease = 3 * time.Second
	first, source := r.sink(2, "storage", ""), r.source("storage", "")
	r.reaches(source, r.at(2))
	second := r.sink(3, "storage", "")
	second.Until(t, "the name to be taken", func(s *status.Daemon) bool { return s.Cluster.Taken != "" })
	begun := time.Now()
	first.Kill()
	defer func() {
		if t.Failed() {
			t.Logf("killed at %v; the source's log:\n%s\nand that of the daemon that takes the name:\n%s", begun, source.Log, second.Log)
		}
	}()
	r.reaches(source, r.at(3))
	gap := time.Since(begun)
	t.Logf("lease %v; the peer's daemon killed: messages are acknowledged elsewhere after %v", r.lease, gap.Round(time.Millisecond))
	if gap > testenv.Within(2*r.lease) && !testing.Short() {
		t.Errorf("the flow followed after %v, and has two leases, %v", gap, 2*r.lease)
	}
	third := r.sink(2, "storage", "")
	third.Until(t, "the name to be taken", func(s *status.Daemon) bool { return s.Cluster.Taken != "" })
	begun = time.Now()
	second.Terminate(t)
	r.reaches(source, r.at(2))
	gap = time.Since(begun)
	t.Logf("lease %v; the peer's daemon leaves: messages are acknowledged elsewhere after %v", r.lease, gap.Round(time.Millisecond))
	if gap > testenv.Within(r.lease+time.Second) && !testing.Short() {
		t.Errorf("the flow followed after %v", gap)
	}
	s := source.Until(t, "the status", func(*status.Daemon) bool { return true })
	if p := peer(&s); p.Followed != 2 && p.Followed != 1 { // a connection that was refused before is no move
		t.Errorf("the peer was followed %d times", p.Followed)
	}
	text, err := source.Page("/metrics")
	if err != nil || !strings.Contains(text, "unifiedd_cluster_registered 1") || !strings.Contains(text, `unifiedd_peer_followed_total{flow="feed",host="storage"}`) {
		t.Errorf("the metrics have no cluster: %v\n%s", err, text)
	}
}

// TestRegistryGone: with etcd killed the flow goes on, and status says so. When etcd is back, all is as before without a
// restart, also if leases have ended meanwhile.
func TestRegistryGone(t *testing.T) {
	testenv.Long(t, "it waits for leases")
	testenv.Leaks(t)
	r := newRig(t, 3)
	sink, source := r.sink(2, "storage", ""), r.source("storage", "")
	r.reaches(source, r.at(2))
	r.registered(sink)
	r.etcd.Kill()
	for _, d := range []*daemon.Daemon{sink, source} {
		d.Until(t, "the status to say that etcd is away", func(s *status.Daemon) bool { return !s.Cluster.Up && s.Flows[0].State == status.Running })
	}
	r.reaches(source, r.at(2))
	r.etcd.Again(t)
	r.forgotten(sink, source)
}

// forgotten has etcd go away for longer than the leases, and come back without its data.
func (r *rig) forgotten(sink, source *daemon.Daemon) {
	r.t.Helper()
	r.registered(source)
	r.registered(sink)
	r.etcd.Kill()
	for _, d := range []*daemon.Daemon{sink, source} {
		d.Until(r.t, "the lease to end", func(s *status.Daemon) bool { return !s.Cluster.Up && !s.Cluster.Registered })
	}
	if !says(r.t, source, []string{"etcd does not answer since", "Flows go on"}, "cluster", "status") {
		r.t.Error("unifiedd cluster status succeeds without etcd")
	}
	says(r.t, source, []string{"etcd does not answer since", "running since"}, "status", "-o", "wide")
	r.reaches(source, r.at(2))
	s := source.Until(r.t, "the status", func(*status.Daemon) bool { return true })
	connections := peer(&s).Connections
	r.etcd.Forget(r.t)
	r.etcd.Again(r.t)
	begun := time.Now()
	r.registered(source)
	r.registered(sink)
	r.t.Logf("etcd is back without its data: both daemons are registered after %v", time.Since(begun).Round(time.Millisecond))
	r.reaches(source, r.at(2))
	s = source.Until(r.t, "the peer to be registered", func(s *status.Daemon) bool {
		return len(s.Cluster.Names) == 1 && s.Cluster.Names[0].State == status.NameRegistered
	})
	if n := peer(&s).Connections; n != connections || connections != 1 {
		r.t.Errorf("the flow connected %d times, and then %d", connections, n)
	}
}

// TestHostile: what somebody else writes under a peer's name is refused and counted, and the flow goes on.
func TestHostile(t *testing.T) {
	testenv.Long(t, "flows/cluster tests records that are refused")
	testenv.Leaks(t)
	r := newRig(t, 3)
	r.sink(2, "storage", "")
	source := r.source("storage", "")
	r.reaches(source, r.at(2))
	for i, text := range []string{`{"format":9}`, "nonsense", `{"format":1,"protocol":1,"name":"other"}`, strings.Repeat("x", 70<<10)} {
		c := r.hosts[1].Command(etcdctl(t), "--endpoints", r.etcd.URL, "put", "/unifiedd/daemons/storage")
		c.Env, c.Stdin = append(c.Environ(), "ETCDCTL_API=3"), strings.NewReader(text)
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("etcdctl: %v\n%s", err, out)
		}
		source.Until(t, "the record to be refused", func(s *status.Daemon) bool {
			sum := uint64(0)
			for _, n := range s.Cluster.Refused {
				sum += n
			}
			return sum >= uint64(i+1) && s.Cluster.Names[0].State == status.NameRefused
		})
		r.reaches(source, r.at(2))
	}
	s := source.Until(t, "the status", func(*status.Daemon) bool { return true })
	for _, reason := range []string{"bad_version", "bad_json", "bad_name", "too_long"} {
		if s.Cluster.Refused[reason] != 1 {
			t.Errorf("%d records were refused for %s: %v", s.Cluster.Refused[reason], reason, s.Cluster.Refused)
		}
	}
	says(t, source, []string{"peer storage", "its record is refused, too_long", "1 record with the reason bad_version"}, "status", "-o", "wide")
}

// etcdctl returns the path of etcd's own client.
func etcdctl(t *testing.T) string {
	t.Helper()
	return filepath.Join(filepath.Dir(etcdserver.Program(t)), "etcdctl")
}

// TestTLS: etcd and the daemons use TLS. A peer needs a certificate with the name under which it is registered, so that
// who writes to etcd cannot have a flow send to another one.
func TestTLS(t *testing.T) {
	testenv.Leaks(t)
	r := newRig(t, 4)
	r.etcd.Kill()
	ca := authority.New(t)
	cert, key := issue(t, ca, "etcd", r.hosts[0])
	r.etcd = etcdserver.Start(t, etcdserver.Options{At: r.hosts[0], Host: r.hosts[0].IP.String(), Port: registryPort + 10, Certificate: cert, Key: key, Authority: ca.File()})
	own := secret(t, ca, "storage", r.hosts[2])
	r.tls = ", tls: " + own
	sink := r.sink(2, "storage", "tls: "+own+"\n")
	r.tls = ", tls: " + secret(t, ca, "source", r.hosts[1])
	source := r.source("storage", "tls: "+secret(t, ca, "source", r.hosts[1])+"\n")
	r.reaches(source, r.at(2))
	r.registered(source)
	s := source.Until(t, "the status", func(*status.Daemon) bool { return true })
	if p := peer(&s); p.Certificate != "storage" {
		t.Errorf("the peer's certificate is %q", p.Certificate)
	}
	r.doctor(source)

	sink.Terminate(t) // another daemon with a certificate of its own takes the name
	r.tls = ", tls: " + secret(t, ca, "other", r.hosts[3])
	r.sink(3, "storage", "tls: "+secret(t, ca, "other", r.hosts[3])+"\n")
	source.Until(t, "the certificate to be refused", func(s *status.Daemon) bool {
		p := peer(s)
		return p.Address == r.at(3) && p.State != "connected" && strings.Contains(p.Error, "storage")
	})
}

// doctor checks what `unifiedd doctor` says of the configuration of a daemon.
func (r *rig) doctor(d *daemon.Daemon) {
	r.t.Helper()
	file := filepath.Join(filepath.Dir(d.Socket), "unifiedd.yaml")
	say := func() string {
		out, _ := r.hosts[1].Command(program, "doctor", "-c", file).CombinedOutput() // what it says is checked
		return string(out)
	}
	for _, text := range []string{"others find this daemon as source", "etcd " + r.etcd.URL, "release 3.", "cluster.tls.certificate", "expires at"} {
		if out := say(); !strings.Contains(out, text) {
			r.t.Errorf("the doctor does not say %q:\n%s", text, out)
		}
	}
	r.etcd.Kill()
	if out := say(); !strings.Contains(out, "does not answer") {
		r.t.Errorf("the doctor does not say that etcd is away:\n%s", out)
	}
	r.etcd.Again(r.t)
	r.registered(d)
}

// TestStatic: with places in the configuration a flow follows a reload, and is not restarted.
func TestStatic(t *testing.T) {
	testenv.Leaks(t)
	r := newRig(t, 4)
	r.etcd.Kill() // not needed
	text := func(host int) string {
		return fmt.Sprintf(`region: {size: 32MiB, extents: 0, pages: ordinary}
cluster: {resolver: static, peers: [{peer: storage/feed, address: %q}]}
flows:
  - name: feed
    from: {generate: 256, rate: 2000}
    to: {rdma: "roce:%s", queue: 256, peers: [{peer: storage/feed, policy: drop_oldest}]}
`, r.at(host), r.hosts[1].Ifname)
	}
	r.sink(2, "a", "")
	r.sink(3, "b", "")
	source := daemon.Launch(t, program, r.hosts[1], t.TempDir(), text(2))
	n := r.reaches(source, r.at(2))
	source.Configure(t, text(3))
	if out, err := source.Control("reload"); err != nil {
		t.Fatalf("reload: %v\n%s", err, out)
	}
	if more := r.reaches(source, r.at(3)); more <= n {
		t.Errorf("%d messages were acknowledged, and before %d: the flow was restarted", more, n)
	}
	if says(t, source, []string{"storage", r.at(3)}, "cluster", "status") {
		t.Error("unifiedd cluster status fails with places in the configuration")
	}
	if out, err := exec.Command(program, "cluster", "status", "--socket", filepath.Join(t.TempDir(), "none")).CombinedOutput(); err == nil {
		t.Errorf("unifiedd cluster status succeeds without a daemon: %s", out)
	}
}
