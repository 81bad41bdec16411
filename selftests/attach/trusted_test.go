package attach

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/attached"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/selftests/daemon"
	"github.com/unifiedd/unifiedd/selftests/harness"
)

// toPeer launches a daemon whose flow orders sends messages of the program writer to a peer on A.
func (p *pair) toPeer(t *testing.T, trusted bool) *daemon.Daemon {
	t.Helper()
	return daemon.Launch(t, program, &p.B, p.dir, fmt.Sprintf(`
region: {size: 64MiB, pages: ordinary}
workers: [{name: main}]
attach: {socket: %s, programs: [{name: writer, user: "%d", out: 4MiB}]}
flows:
  - {name: orders, from: {attach: writer, message: 1KiB, trusted: %v}, to: {rdma: "roce:%s", peers: [{name: a, address: "%s:7471"}]}}
`, p.socket, os.Getuid(), trusted, p.B.Ifname, p.A.IP))
}

// peer starts the peer on A, for n messages.
func (p *pair) peer(t *testing.T, n int) *daemon.Client {
	t.Helper()
	return daemon.StartClient(t, flowTest, &p.A, "receive", "-device", "roce:"+p.A.Ifname, "-ordinary", "-listen", p.A.IP.String()+":7471", "-flow", "orders", "-count", fmt.Sprint(n))
}

// TestTrusted: peers get messages of a trusted program from where they lie: neither the flow nor the device copies
// them. Those of another program are copied once. Both arrive whole.
func TestTrusted(t *testing.T) {
	for _, trusted := range []bool{false, true} {
		t.Run(fmt.Sprint(trusted), func(t *testing.T) {
			const n, size = 5000, 1000
			p := newPair(t)
			peer := p.peer(t, n)
			d := p.toPeer(t, trusted)
			d.Until(t, "the peer to be connected", connected)
			p.B.Run(t, flowTest, "submit", "-socket", p.socket, "-as", "writer", "-flow", "orders", "-size", fmt.Sprint(size), "-count", fmt.Sprint(n))
			peer.Await(t, 20*time.Second)
			if !strings.Contains(peer.Out.String(), fmt.Sprintf("%d messages", n)) {
				t.Errorf("the peer says: %s", &peer.Out)
			}
			want := uint64(n * size)
			if trusted {
				want = 0
			}
			s, err := d.Status()
			testenv.Must(t, err)
			f := s.Flows[0]
			if f.Sends.Peers[0].Acknowledged != n || f.CopiedBytes["attach"] != want || f.Submits.Trusted != trusted {
				t.Errorf("the peer has acknowledged %d of %d; copied %v, want %d; %+v", f.Sends.Peers[0].Acknowledged, n, f.CopiedBytes, want, f.Submits)
			}
			for what, copied := range s.RDMA[0].SentCopied {
				if copied >= n*size {
					t.Errorf("the device has copied %d bytes: %s", copied, what)
				}
			}
		})
	}
}

// connected reports whether the peer of the daemon's flow is connected.
func connected(s *status.Daemon) bool {
	return len(s.Flows) == 1 && s.Flows[0].Sends != nil && s.Flows[0].Sends.Peers[0].State == "connected"
}

// TestTrustedChanges: the bytes of a trusted program's message are read when they leave. If the program changes them
// after Commit, peers refuse the message, and it is not done. If it puts them back, the message arrives, once. A
// program that is not trusted changes nothing: the flow has sent a copy.
func TestTrustedChanges(t *testing.T) {
	testenv.Long(t, "TestTrusted has the same programs")
	for _, trusted := range []bool{false, true} {
		t.Run(fmt.Sprint(trusted), func(t *testing.T) {
			p := newPair(t)
			d := p.toPeer(t, trusted)
			d.Until(t, "the flow to run", func(s *status.Daemon) bool { return len(s.Flows) == 1 && s.Flows[0].Submits != nil })
			k := attach(t, p.dir, "writer", 0)
			s, err := k.Send("orders", 0)
			testenv.Must(t, err)
			f, err := s.Claim()
			testenv.Must(t, err)
			harness.Fill(f.Data[:1000], 1, 1) // what the peer expects
			if _, err := s.Commit(f, 1000); err != nil {
				t.Fatal(err)
			}
			d.Until(t, "the message to wait for the peer", func(s *status.Daemon) bool { return s.Flows[0].Sends.Peers[0].Offered == 1 })
			f.Data[7] ^= 0xff
			peer := p.peer(t, 1)
			if trusted {
				d.Until(t, "the peer to refuse the message", func(s *status.Daemon) bool {
					p := &s.Flows[0].Sends.Peers[0]
					return p.Failures >= 1 && strings.Contains(p.Error, "checksum")
				})
				if n, err := s.Poll(make([]attached.Receipt, 1)); n != 0 || err != nil {
					t.Errorf("%d receipts: %v", n, err)
				}
				f.Data[7] ^= 0xff
			}
			ctx, cancel := context.WithTimeout(t.Context(), testenv.Within(30*time.Second))
			defer cancel()
			got := make([]attached.Receipt, 2)
			n := 0
			for n == 0 {
				testenv.Must(t, s.Wait(ctx, time.Second))
				if n, err = s.Poll(got); err != nil {
					t.Fatal(err)
				}
			}
			if n != 1 || got[0].Sequence != 1 || got[0].Err != nil {
				t.Errorf("%d receipts: %+v", n, got)
			}
			peer.Await(t, 20*time.Second)
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
