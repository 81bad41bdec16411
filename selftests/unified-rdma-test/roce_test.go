package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/providers"
)

// wholeVariable asks for the long forms of the tests between two namespaces. make test-long SUITE=roce sets it.
const wholeVariable = "UNIFIEDD_ROCE_WHOLE"

// newRoCE returns a veth pair with RoCE in software at both ends. Each end is in its own namespace,
// where the program runs as a separate process.
func newRoCE(t *testing.T, o testenv.PairOptions) (place, *testenv.Pair) {
	t.Helper()
	pair := testenv.NewPair(t, o)
	testenv.HugePages(t, 256<<20)
	sit := func(e *testenv.End) seat {
		return seat{card: e.Ifname, device: providers.SoftPrefix + e.Ifname, in: e.Namespace}
	}
	return place{seat: sit(&pair.A), far: sit(&pair.B), server: pair.B.IP.String(), mtu: rdma.FitsInterface(pair.MTU).Bytes(),
		patient: "-qp-timeout 16 ", whole: os.Getenv(wholeVariable) != "", tooLong: rdma.RemoteInvalidRequest,
		sent: func(t *testing.T) uint64 { return pair.A.Stats(t).TxPackets }}, pair
}

// TestRoCE: RoCE in software between two namespaces does what an RDMA device must do.
func TestRoCE(t *testing.T) {
	p, pair := newRoCE(t, testenv.PairOptions{MTU: 4200, IPv6: true})
	inSoftware(t, p, pair)
	if !p.whole {
		return
	}
	step := func(name string, f func(t *testing.T, p place)) { t.Run(name, func(t *testing.T) { f(t, p) }) }
	step("server goes on", serverGoesOn)
	step("client gone", clientGone)
	step("unnoticed", unnoticed)
	step("killed", peerKilled)
	step("stopped", func(t *testing.T, p place) {
		silent := rdma.RetryExceeded.String() + "|check that the peer is alive"
		peerStopped(t, p, map[string]string{"-test latency -op send": silent, "-test latency -op write": silent, "-test bandwidth -op send -size 64": silent})
	})
	step("link down", func(t *testing.T, p place) {
		linkDown(t, p, func(up bool) { setLink(t, &pair.A, up) }, rdma.RetryExceeded)
	})
}

// inSoftware runs the tests that take a few seconds.
func inSoftware(t *testing.T, p place, pair *testenv.Pair) {
	t.Helper()
	disk := filepath.Join(testenv.DiskDir(t), "disk")
	step := func(name string, f func(t *testing.T, p place)) { t.Run(name, func(t *testing.T) { f(t, p) }) }
	step("matrix", func(t *testing.T, p place) {
		p.sizes, p.matrix = []int{3000}, "-mtu 1024 " // a message has three packets, a datagram one
		wholeMatrix(t, p)
	})
	step("storage", func(t *testing.T, p place) { storage(t, p, disk, storageCases(p)) })
	step("measured", measured)
	step("formats", ourselves)
	step("counted", countedInSoftware)
	step("addresses", func(t *testing.T, p place) { addressed(t, p, pair) })
	step("refused", refusedInSoftware)
	step("managed", managedInSoftware)
}

func storageCases(p place) []string {
	if p.whole {
		return []string{"-size 4096 -n 400 -depth 8", "-n 100", "-size 1048576 -n 20 -depth 4", "-size 65536 -n 1 -json"}
	}
	return []string{"-size 65536 -n 20 -depth 4"}
}

// TestRoCEMatrix: the matrix passes over each MTU (make test-long SUITE=roce). The short form runs a little of
// it, over an MTU that fits a frame. The MTU of TestRoCE does not fit one.
func TestRoCEMatrix(t *testing.T) {
	if os.Getenv(wholeVariable) == "" {
		p, _ := newRoCE(t, testenv.PairOptions{})
		p.serveOn(t, p.asServer("-keep", noDisk)...)
		verified(t, p, rdma.RC, "write-immediate", rdma.WriteImmediate, 65537)
		verified(t, p, rdma.UD, "send", rdma.Send, 1024)
		return
	}
	for _, mtu := range []int{256, 512, 1024, 2048, 4096} {
		t.Run(fmt.Sprint(mtu), func(t *testing.T) { overMTU(t, mtu) })
	}
}

// overMTU runs the matrix on interfaces with that MTU, and on interfaces with a larger one of which
// RDMA uses no more.
func overMTU(t *testing.T, mtu int) {
	const overhead = 80
	p, _ := newRoCE(t, testenv.PairOptions{MTU: mtu + overhead})
	p.sizes = append(slices.Clone(sizes), 8<<20)
	matrixOf(t, p, "", rdma.RC)
	// The space for a message of 8 MiB is the only limit for UC and UD.
	testenv.HugePages(t, 256<<20)
	matrixOf(t, p, "-receive 32768", rdma.UC, rdma.UD)
	p, _ = newRoCE(t, testenv.PairOptions{MTU: 9000})
	p.sizes, p.matrix = []int{0, 255, 65537}, fmt.Sprintf("-mtu %d ", mtu)
	wholeMatrix(t, p)
}

// managedInSoftware: our connection manager connects the queue pairs of our program, and those of
// rping's protocol.
func managedInSoftware(t *testing.T, p place) {
	s := p.serveOn(t, p.asServer("-keep", noDisk)...)
	for _, options := range []string{"-R -test verify -op write -n 20", "-R -test verify -op read -size 10000 -n 20"} {
		if out := p.asked(t, p.asClient(options)...); !strings.Contains(out, "every byte as it should be") {
			t.Errorf("%s: %s", options, out)
		}
	}
	s.Says("connected through rdma_cm")
	s.ended()
	s = p.serveOn(t, "-reserve", "-peer", "rping", p.far.card, p.far.device, noDisk, "server")
	if out := p.asked(t, "-reserve", "-peer", "rping", "-n", "20", "-size", "1000", p.card, p.device, noDisk, p.server); !strings.Contains(out, "20 pings of 1000 bytes, every byte as it should be") {
		t.Error(out)
	}
	s.Must()
	s.Says("20 pings")
}

// countedInSoftware: both sides print the counters of their devices.
func countedInSoftware(t *testing.T, p place) {
	s := p.serveOn(t, p.asServer("-keep", noDisk)...)
	out := p.asked(t, p.asClient("-test verify -n 20 -size 16384 -json")...)
	var r struct{ Counters counts }
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if sent := r.Counters["packets_sent"]; sent < 20*4 || r.Counters["packets_received"] == 0 {
		t.Errorf("20 messages of 4 packets: %v", r.Counters)
	}
	if s.ended(); !strings.Contains(s.Out.String(), "meanwhile "+p.far.device+" counted: ") {
		t.Errorf("the server says %s", &s.Out)
	}
}

// addressed sends messages over IPv6, and from the address that the user chooses.
func addressed(t *testing.T, p place, pair *testenv.Pair) {
	s := p.serveOn(t, p.asServer("-keep", noDisk)...)
	p.asked(t, p.asClient("-gid 0 -test verify -n 10")...)
	p.server = pair.B.IP6.String()
	for _, options := range []string{"-test verify -n 10 -size 65537", "-test verify -n 10 -transport UD -size 1000", "-test verify -op read -n 10"} {
		p.asked(t, p.asClient(options)...)
	}
	s.ended()
}

// refusedInSoftware: the program reports what cannot work, and what to check.
func refusedInSoftware(t *testing.T, p place) {
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"no such interface": {[]string{"none0", "roce:none0", noDisk, p.server}, "ip link"},
		"loopback":          {[]string{"lo", "roce:lo", noDisk, p.server}, "lo"},
		"no server":         {p.asClient("-timeout 2s"), "connection refused"},
		"no such GID":       {p.asClient("-gid 200"), "-gid 200"},
		"MTU":               {p.asClient("-mtu 1500"), "256, 512, 1024, 2048 or 4096"},
	} {
		if status, out, errs := p.askFor(t, c.args...); status != 1 || !strings.Contains(errs, c.want) {
			t.Errorf("%s: status %d, %q does not say %q; %s", name, status, errs, c.want, out)
		}
	}
	p.twice(t)
}

// twice starts two servers on the same interface.
func (p place) twice(t *testing.T) {
	s := p.serveOn(t, p.asServer("-keep -timeout 3s", noDisk)...)
	client := s.asks(p, fmt.Sprintf("-timeout %v -test latency", testenv.Within(time.Second)))
	second := p
	second.seat = p.far
	status, out, errs := second.askFor(t, second.asServer("-port 18517 -timeout 2s", noDisk)...)
	if status != 1 || !strings.Contains(errs, p.far.card) {
		t.Errorf("a second server on the same interface: status %d, %s%s", status, out, errs)
	}
	s.ended()
	client.End()
}

// setLink sets an end up or down.
func setLink(t *testing.T, e *testenv.End, up bool) {
	if up {
		e.SetUp(t)
	} else {
		e.SetDown(t)
	}
}
