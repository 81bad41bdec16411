package bpf

import (
	"math/rand/v2"
	"testing"

	"github.com/unifiedd/unifiedd/bpf/filter"
)

// FuzzFilter holds any filter the kernel loads against the matcher, over any packet.
func FuzzFilter(f *testing.F) {
	r := rand.New(rand.NewPCG(7, 8))
	for _, text := range expressions(f, "expressions.txt") {
		f.Add(text, randomAny(r))
	}
	f.Fuzz(func(t *testing.T, text string, packet []byte) {
		e, err := filter.Parse(text)
		// What is not a packet for BPF_PROG_TEST_RUN, or a filter too slow to load.
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
