package interop

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/selftests/daemon"
)

// operation is an operation of unified-rdma-test, and the transports that support it.
type operation struct {
	name       string
	transports []rdma.Transport
	sizes      []int
}

var (
	sizes      = []int{0, 1, 255, 4096, 65537, 8 << 20}
	operations = []operation{
		{"send", []rdma.Transport{rdma.RC, rdma.UC, rdma.UD}, sizes},
		{"send-immediate", []rdma.Transport{rdma.RC, rdma.UC, rdma.UD}, sizes},
		{"write", []rdma.Transport{rdma.RC, rdma.UC}, sizes},
		{"write-immediate", []rdma.Transport{rdma.RC, rdma.UC}, sizes},
		{"read", []rdma.Transport{rdma.RC}, sizes},
		{"fetch-add", []rdma.Transport{rdma.RC}, []int{8}},
		{"compare-swap", []rdma.Transport{rdma.RC}, []int{8}},
	}
)

// jobs returns the test names and options of the matrix's clients. Each job verifies one operation
// of one transport in one size. At its end it sends a request that exceeds the limits.
func jobs() (names, options []string) {
	for _, o := range operations {
		for _, transport := range o.transports {
			for _, size := range o.sizes {
				if transport == rdma.UD && size > 4096 {
					continue
				}
				n, depth := 20, 8
				if size > 4096 {
					n, depth = 4, 2
				}
				names = append(names, fmt.Sprintf("%v_%s_%d", transport, o.name, size))
				options = append(options, fmt.Sprintf("-test verify -beyond -transport %v -op %s -size %d -n %d -depth %d %s", transport, o.name, size, n, depth, patient))
			}
		}
	}
	return names, options
}

// patient has the options for an emulated machine, where an acknowledgement may take a second.
const patient = "-qp-timeout 18 -timeout 20s -reserve"

// guestCommand is the command line of unified-rdma-test in the guest.
func (b *bench) guestCommand(options, where string) string {
	return fmt.Sprintf("%s %s %s %s - %s", b.program, options, card, device, where)
}

// judgeJob checks that a client printed the expected results.
func judgeJob(t *testing.T, said string) {
	t.Helper()
	for _, want := range []string{"every byte as it should be", "refused, as it must be: "} {
		if !strings.Contains(said, want) {
			t.Errorf("the client does not say %q:\n%s", want, said)
		}
	}
}

// either alternates between the addresses, so that the matrix covers IPv4 and IPv6.
func either(i int, v4, v6 netip.Addr) string {
	if i%2 == 0 {
		return v4.String()
	}
	return v6.String()
}

// matrixLimit is the time limit of a server of the matrix.
const matrixLimit = 20 * time.Minute

// guestAsks runs the matrix with the client in the guest and our server in the namespace.
func (b *bench) guestAsks(t *testing.T) {
	s := b.ours(t, matrixLimit, "-keep "+patient, "server")
	s.says(t, "waiting for")
	names, options := jobs()
	for i, name := range names {
		t.Run(name, func(t *testing.T) { judgeJob(t, b.run(t, b.guestCommand(options[i], either(i, b.tap.IP, b.tap.IP6)))) })
	}
	s.end(t)
	s.ended(t)
}

// guestServes runs the matrix with the server in the guest. The server runs until the host listens
// on a TCP port. A file would not work as a signal: Linux 7 caches that a file did not exist in a
// directory of the host.
func (b *bench) guestServes(t *testing.T) {
	const text = `%s & server=$!; until (exec 3<>/dev/tcp/%v/%d) 2>/dev/null; do sleep 0.2; done; kill $server; wait $server`
	const port = 4000
	said, ended := new(daemon.Log), make(chan func(), 1)
	go func() {
		r, err := b.try(fmt.Sprintf(text, b.guestCommand("-keep "+patient, "server"), b.tap.IP, port), matrixLimit, said)
		ended <- func() { judge(t, "unified-rdma-test", r, err, said) }
	}()
	defer func() {
		defer b.listen(t, port).Close()
		(<-ended)()
	}()
	testenv.Wait(t, limit, "the server in the guest", func() bool { return strings.Contains(said.String(), "waiting for") })
	names, options := jobs()
	for i, name := range names {
		t.Run(name, func(t *testing.T) {
			s := b.ours(t, limit, options[i], either(i, b.tap.PeerIP, b.tap.PeerIP6))
			s.ended(t)
			judgeJob(t, s.said.String())
		})
	}
}

// listen listens for TCP connections at the host's end of the wire.
func (b *bench) listen(t *testing.T, port uint16) (l net.Listener) {
	t.Helper()
	var err error
	b.tap.Do(t, func() { l, err = net.Listen("tcp", netip.AddrPortFrom(b.tap.IP, port).String()) })
	testenv.Must(t, err)
	return l
}
