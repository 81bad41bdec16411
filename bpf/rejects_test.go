package bpf

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/bpf/filter"
	"github.com/unifiedd/unifiedd/internal/linktype"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// dlt is what tcpdump -y calls a link type.
var dlt = map[linktype.Type]string{linktype.Ethernet: "EN10MB", linktype.RawIP: "RAW"}

// theirVerdict asks tcpdump to compile an expression. It returns whether tcpdump refuses it, and whether
// because no packet can match.
func theirVerdict(t *testing.T, of linktype.Type, text string) (refused, rejects bool, says string) {
	t.Helper()
	var out bytes.Buffer
	ctx, end := context.WithTimeout(context.Background(), 10*time.Second)
	defer end()
	cmd := exec.CommandContext(ctx, testenv.Tool(t, "tcpdump"), "-y", dlt[of], "-d", "--", text)
	cmd.Stderr = &out
	err := cmd.Run()
	return err != nil, strings.Contains(out.String(), "rejects all packets"), strings.TrimSpace(out.String())
}

// oneOf returns tests that often contradict each other.
func oneOf(r *rand.Rand) string {
	field := pick(r, []string{"ip[8]", "ip[9]", "ip6[6]", "tcp[13]", "udp[0:2]", "icmp[0]", "ether[12:2]", "ether[0]", "ip[0]", "ip[12:4]", "len", "tcp[0:2]", "arp[6:2]", "ip[6:2]"})
	n := pick(r, []int{0, 1, 2, 5, 6, 16, 17, 40, 60, 64, 80, 128, 255, 256, 1500, 2048, 0x86dd, 65535, 70000})
	switch r.IntN(10) {
	case 0, 1:
		return fmt.Sprintf("%s %s %d", field, pick(r, []string{"=", "!=", ">", "<", ">=", "<="}), n)
	case 2:
		return fmt.Sprintf("%s & %d %s %d", field, n, pick(r, []string{"=", "!=", ">"}), pick(r, []int{0, 1, 2, 3, n}))
	case 3:
		return pick(r, []string{"vlan", "vlan 5", "mpls", "pppoes", "icmp", "arp", "ip", "ip6", "ip multicast", "broadcast", "llc", "stp", "iso", "pppoed", "isis", "ipx"})
	case 4:
		return fmt.Sprintf("%d %s %d", r.IntN(3), pick(r, []string{"=", ">", "<"}), r.IntN(3))
	case 5:
		return pick(r, []string{"src net 10.0.0.0/8", "dst host 10.0.0.1", "src host 10.0.0.2", "src net 192.168.0.0/16", "dst net 10.0.0.0/24", "net 10", "host ::1", "ip6 net fe80::/10"})
	}
	return randomTest(r)
}

// contradiction joins a few of these tests, mostly with and.
func contradiction(r *rand.Rand, depth int) string {
	if depth == 0 || r.IntN(4) == 0 {
		return oneOf(r)
	}
	var parts []string
	for range 2 + r.IntN(2) {
		part := "(" + contradiction(r, depth-1) + ")"
		if r.IntN(5) == 0 {
			part = "not " + part
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, pick(r, []string{" and ", " and ", " and ", " or "}))
}

// TestRejectsAll: if Parse refuses an expression because no packet can match, tcpdump accepts no packet with it either. Nearly
// all that tcpdump refuses for this reason Parse refuses, and the others match no packet.
func TestRejectsAll(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 6))
	var packets [][]byte
	for len(packets) < 300 {
		packets = append(packets, randomPlain(r), randomAny(r), randomLayered(r))
	}
	file := writePcap(t, packets)
	both, ours, theirs := 0, 0, 0
	for range 600 {
		text := contradiction(r, 2+r.IntN(2))
		if strings.Contains(text, "protochain") { // libpcap does not optimize it, and its code may then loop for ever
			continue
		}
		e, err := filter.Parse(text)
		mine := errors.Is(err, filter.ErrRejectsAll)
		if err != nil && !mine {
			continue
		}
		refused, rejects, _ := theirVerdict(t, linktype.Ethernet, text)
		switch {
		case mine && rejects:
			both++
		case rejects:
			theirs++
			if m := e.Matcher(); slices.ContainsFunc(packets, m.Match) {
				t.Errorf("%q matches a packet, and tcpdump says that it rejects all", text)
			}
		case mine && !refused: // for another reason
			ours++
			if n := len(tcpdump(t, file, text)); n > 0 {
				t.Errorf("%q is refused, and tcpdump takes %d packets", text, n)
			}
		}
	}
	t.Logf("refused by both %d, here alone %d, by tcpdump alone %d", both, ours, theirs)
	if both < 100 || theirs > both/50 {
		t.Errorf("refused by both %d, by tcpdump alone %d", both, theirs)
	}
}
