package bpf

import (
	"math/rand/v2"
	"testing"

	"github.com/unifiedd/unifiedd/bpf/filter"
)

// TestMatcherIsTheReference compares what a filter means in user space with what
// it means, for packets of all kinds, cut ones too. The XDP program is compared
// with the same reference.
func TestMatcherIsTheReference(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 9))
	accepted, all := 0, 0
	check := func(text string, packets int) {
		e := mustParse(t, text)
		m := e.Matcher()
		for range packets {
			p := randomAny(r)
			f := examine(p)
			want := f.matches(e.String())
			if m.Match(p) != want {
				t.Fatalf("%q: %v, not %v, for %x", e, !want, want, p)
			}
			if all++; want {
				accepted++
			}
		}
	}
	for _, text := range expressions {
		check(text, 200)
	}
	for range 3000 {
		check(randomExpression(r, 3, randomTaggedTest), 30)
	}
	if accepted < all/20 || accepted > all*19/20 {
		t.Errorf("%d of %d packets were accepted: the test shows little", accepted, all)
	}
}

func TestMatcherAllocatesNothing(t *testing.T) {
	m := mustParse(t, "udp dst port 53 or vlan 5 and not host 2001:db8::1").Matcher()
	r := rand.New(rand.NewPCG(1, 2))
	p := randomAny(r)
	if n := testing.AllocsPerRun(100, func() { m.Match(p) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzMatcher: no packet makes it panic.
func FuzzMatcher(f *testing.F) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 20 {
		f.Add(randomAny(r))
	}
	e, err := filter.Parse("(tcp port 80 or udp or sctp) and (host 10.0.0.1 or ip6) or vlan or arp host 10.0.0.1 or multicast")
	if err != nil {
		f.Fatal(err)
	}
	m := e.Matcher()
	f.Fuzz(func(_ *testing.T, p []byte) { m.Match(p) })
}
