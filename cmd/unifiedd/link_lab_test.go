package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestTunnels: capture works on kernel tunnels whose packets begin with an IP header. It refuses
// the others and names their type.
func TestTunnels(t *testing.T) {
	labenv.Guest(t)
	testenv.Root(t)
	p := testenv.NewPair(t, testenv.PairOptions{IPv6: true})
	for _, c := range []struct {
		name, mode, family string
		says               string // empty: capture accepts it
	}{
		{"ipip9", "ipip", "-4", ""},
		{"six9", "any", "-6", ""},
		{"gre9", "gre", "-4", "type gre"},
		{"sit9", "sit", "-4", "type sit"},
	} {
		t.Run(c.mode, func(t *testing.T) {
			one, other := p.A.IP.String(), p.B.IP.String()
			if c.family == "-6" {
				one, other = p.A.IP6.String(), p.B.IP6.String()
			}
			for _, e := range []struct {
				*testenv.End
				local, remote, address string
			}{{&p.A, one, other, "10.99.0.1/24"}, {&p.B, other, one, "10.99.0.2/24"}} {
				e.Run(t, "ip", c.family, "tunnel", "add", c.name, "mode", c.mode, "local", e.local, "remote", e.remote)
				e.Run(t, "ip", "addr", "add", e.address, "dev", c.name)
				e.Run(t, "ip", "link", "set", c.name, "up")
			}
			defer func() {
				p.A.Run(t, "ip", c.family, "tunnel", "del", c.name)
				p.B.Run(t, "ip", c.family, "tunnel", "del", c.name)
			}()
			file := filepath.Join(testenv.DiskDir(t), c.name+".pcapng")
			ping := p.A.Command("ping", "-q", "-i", "0.1", "-w", "60", "10.99.0.2")
			testenv.Must(t, ping.Start())
			status, _, stderr := finish(t, command(t, &p.B, "capture", "-i", c.name, "--take", "-c", "5", "--ring", "512", "-w", file, "icmp and src host 10.99.0.1"))
			_ = ping.Process.Kill()
			_ = ping.Wait()
			if c.says != "" {
				if status == 0 || !strings.Contains(stderr, c.says) {
					t.Errorf("status %d: %s", status, stderr)
				}
				return
			}
			if status != 0 {
				t.Fatalf("status %d: %s", status, stderr)
			}
			if n, says := count(t, file, "icmp"); n != 5 || !strings.Contains(says, "link-type RAW") {
				t.Errorf("%d packets: %s", n, says)
			}
		})
	}
}
