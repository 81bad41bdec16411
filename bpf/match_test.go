package bpf

import (
	"math/rand/v2"
	"testing"

	"github.com/unifiedd/unifiedd/bpf/filter"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

func TestMatcherAllocatesNothing(t *testing.T) {
	m := mustParse(t, "udp dst port 53 or ip6 protochain 6 or vlan 5 and not host 2001:db8::1").Matcher()
	r := rand.New(rand.NewPCG(1, 2))
	p := randomAny(r)
	if n := testing.AllocsPerRun(100, func() { m.Match(p) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestMatchesWhatIsLeftOfPackets: on a truncated packet the matcher uses the length on the wire,
// and a test of bytes that were cut off rejects the packet.
func TestMatchesWhatIsLeftOfPackets(t *testing.T) {
	p := pad(ethernet(poolMAC[0], poolMAC[1], nil, 0x0800, ipv4("10.0.0.1", "10.0.0.2", 6, 0, 0, ports(1, 80))))
	for text, want := range map[string]bool{
		"len = 1500": true, "less 100": false, "host 10.0.0.1": true, "tcp": true,
		"tcp port 80": false, "not tcp port 80": false, "ip or tcp port 80": true,
	} {
		if got := mustParse(t, text).Matcher().MatchCut(p[:34], 1500); got != want {
			t.Errorf("%q of 34 bytes of 1500: %v, want %v", text, got, want)
		}
	}
}

// FuzzMatcher: no packet makes the matcher panic.
func FuzzMatcher(f *testing.F) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 20 {
		f.Add(randomAny(r))
	}
	e, err := filter.Parse("(tcp port 80 or udp or sctp) and (host 10.0.0.1 or ip6) or protochain 6 or tcp[tcp[12]:4] / ip[0] = 3 or geneve and vlan or arp host 10.0.0.1 or multicast")
	testenv.Must(f, err)
	m := e.Matcher()
	f.Fuzz(func(_ *testing.T, p []byte) { m.Match(p) })
}
