package bpf

import (
	"testing"

	"github.com/cilium/ebpf"

	"github.com/unifiedd/unifiedd/bpf/filter"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// mustParse parses a filter that must be valid.
func mustParse(t testing.TB, text string) *filter.Expr {
	t.Helper()
	e, err := filter.Parse(text)
	testenv.Must(t, err)
	return e
}

// mustLoad loads a program and closes it at the end of the test.
func mustLoad(t testing.TB, c Config) *Program {
	t.Helper()
	testenv.Root(t)
	if c.Queues == 0 {
		c.Queues = 1
	}
	p, err := Load(c)
	testenv.Must(t, err)
	t.Cleanup(func() { testenv.Check(t, p.Close()) })
	return p
}

func mustCount(t testing.TB, p *Program) Counters {
	t.Helper()
	c, err := p.Counters()
	testenv.Must(t, err)
	return c
}

// run runs the loaded program on a packet without an interface, and returns which counter changed.
// That counter must have grown by exactly this packet. A packet that is neither redirected nor
// dropped must be passed to the kernel.
func run(t testing.TB, p *Program, packet []byte) Verdict {
	t.Helper()
	const xdpDrop, xdpPass, xdpRedirect = 1, 2, 4
	before := mustCount(t, p)
	action, err := p.program.Run(&ebpf.RunOptions{Data: packet})
	testenv.Mustf(t, err, "run the program over %d bytes", len(packet))
	after := mustCount(t, p)
	got := Verdict(Verdicts)
	for v := range after {
		switch grown := (Counter{after[v].Packets - before[v].Packets, after[v].Bytes - before[v].Bytes}); grown {
		case Counter{}:
		case Counter{1, uint64(len(packet))}:
			got = Verdict(v)
		default:
			t.Fatalf("counter %v grew by %+v for one packet of %d bytes", Verdict(v), grown, len(packet))
		}
	}
	want := uint32(xdpPass)
	switch got {
	case Redirected:
		want = xdpRedirect
	case Dropped:
		want = xdpDrop
	}
	if action != want {
		t.Fatalf("%v: XDP action %d, want %d", got, action, want)
	}
	return got
}

// accepts reports whether the filter in the kernel accepts a packet. The program has no socket, so
// accepted packets count as NoSocket.
func accepts(t testing.TB, p *Program, packet []byte) bool {
	t.Helper()
	switch v := run(t, p, packet); v {
	case NoSocket:
		return true
	case NoMatch:
		return false
	default:
		t.Fatalf("verdict %v of a program without sockets and limits", v)
		return false
	}
}
