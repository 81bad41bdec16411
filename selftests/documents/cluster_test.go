package documents

import (
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/authority"
	"github.com/unifiedd/unifiedd/internal/testenv/etcdserver"
	"github.com/unifiedd/unifiedd/selftests/daemon"
)

// The configurations of the document about peers by name: of the host with a log, of one that sends there, and of one
// that knows its address from its configuration.
const logDocument, senderDocument, staticDocument = "cluster.md.1", "cluster.md.2", "cluster.md.3"

// TestCluster: with the configurations of the document a daemon finds another one in etcd, with TLS, and a third one
// finds it in its own configuration.
func TestCluster(t *testing.T) {
	testenv.Long(t, "TestDocuments checks the configurations")
	testenv.Root(t)
	ca := authority.New(t)
	ends := testenv.NewSwitch(t, 4, testenv.PairOptions{MTU: 4200})
	issue := func(name, address string) (cert, key string) {
		return ca.Issue(t, name, func(c *x509.Certificate) {
			c.DNSNames, c.IPAddresses = []string{name}, []net.IP{net.ParseIP(address).To4()}
			c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
		})
	}
	cert, key := issue("etcd", "10.0.0.5")
	rename(t, ends[0], "eth2", "10.0.0.5/24")
	etcdserver.Start(t, etcdserver.Options{At: ends[0], Host: "10.0.0.5", Port: 2379, Certificate: cert, Key: key, Authority: ca.File()})

	launch := func(host int, address, document, name string) *daemon.Daemon {
		rename(t, ends[host], "eth2", address+"/24")
		f := newFiles(t)
		dir := filepath.Join(f.dir, "etc/unifiedd/etcd")
		testenv.Must(t, os.MkdirAll(dir, 0o755))
		cert, key := issue(name, address)
		for to, from := range map[string]string{"ca.pem": ca.File(), "cert.pem": cert, "key.pem": key} {
			testenv.Must(t, os.WriteFile(filepath.Join(dir, to), []byte(read(t, from)), 0o600))
		}
		d := daemon.Launch(t, f.wrapper, ends[host], f.dir, named(t, document))
		d.Running(t)
		return d
	}
	keeper := launch(1, "10.0.0.2", logDocument, "storage-1")
	for i, document := range []string{senderDocument, staticDocument} {
		sender := launch(2+i, fmt.Sprintf("10.0.0.%d", 7+i), document, "gateway-1")
		sender.Until(t, "acknowledgements of the peer that "+document+" names", func(s *status.Daemon) bool {
			return s.Flows[0].Sends != nil && s.Flows[0].Sends.Peers[0].Acknowledged > 100 && s.Flows[0].Sends.Peers[0].Address == "10.0.0.2:7471"
		})
		sender.Terminate(t)
	}
	keeper.Until(t, "the log to have records", func(s *status.Daemon) bool { return s.Flows[0].Log != nil && s.Flows[0].Log.Durable > 200 })
}
