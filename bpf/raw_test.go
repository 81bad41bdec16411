package bpf

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/unifiedd/unifiedd/bpf/filter"
	"github.com/unifiedd/unifiedd/internal/linktype"
)

// bare are packets of an interface without Ethernet headers.
func bare(r *rand.Rand, n int) (packets [][]byte) {
	for len(packets) < n {
		for _, p := range [][]byte{randomPlain(r), randomAny(r), randomLayered(r)} {
			if len(p) > 14 {
				packets = append(packets, p[14:])
			}
		}
	}
	return packets
}

// TestRawAgreesWithTcpdump compares with tcpdump on packets of link type RAW: which expressions it refuses,
// for which it says that they reject all packets, and which packets the others accept.
func TestRawAgreesWithTcpdump(t *testing.T) {
	r := rand.New(rand.NewPCG(12, 6))
	packets := bare(r, 500)
	file := writePcapOf(t, linktype.RawIP, packets)
	texts := expressions(t, "expressions.txt")
	for range 100 {
		texts = append(texts, randomExpression(r, 2, randomTest))
	}
	p, both := mustLoad(t, Config{}), 0
	for _, text := range texts {
		refused, rejects, says := theirVerdict(t, linktype.RawIP, text)
		_, err := filter.ParseFor(linktype.RawIP, text)
		if rejects && !errors.Is(err, filter.ErrRejectsAll) || refused && err == nil {
			t.Errorf("%q is taken (%v), and tcpdump says: %s", text, err, says)
			continue
		}
		if refused {
			continue
		}
		if n := verdictsOf(t, p, linktype.RawIP, text, file, packets); n > 0 && n < len(packets) {
			both++
		}
	}
	if both < 100 {
		t.Errorf("only %d of %d filters accepted some packets and rejected others: the test shows little", both, len(texts))
	}
}
