package bpf

import (
	"math/rand/v2"
	"testing"

	"github.com/unifiedd/unifiedd/bpf/filter"
)

// FuzzFilter compares any filter that the kernel loads with the matcher, on any packet.
func FuzzFilter(f *testing.F) {
	r := rand.New(rand.NewPCG(7, 8))
	for _, text := range expressions(f, "expressions.txt") {
		f.Add(text, randomAny(r))
	}
	f.Fuzz(func(t *testing.T, text string, packet []byte) {
		e, err := filter.Parse(text)
		// Skip anything that BPF_PROG_TEST_RUN does not accept as a packet, and filters that take
		// too long to load.
		if err != nil || len(text) > 500 || len(packet) < 14 || len(packet) > 3000 {
			return
		}
		p := mustLoad(t, Config{Filter: e})
		defer p.Close()
		if got, want := accepts(t, p, packet), e.Matcher().Match(packet); got != want {
			t.Fatalf("%q (%s): the program says %v, the matcher %v, of\n%x", text, e, got, want, packet)
		}
	})
}
