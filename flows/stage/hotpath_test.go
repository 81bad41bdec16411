package stage

import (
	"net/netip"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// everything is a chain that changes every field.
func everything(t tester) *Chain {
	return mustChain(t, Step{Set: &Set{
		MACSource: someMACs[0], MACDestination: someMACs[1], VLAN: 5, PortSource: 7, PortDestination: 8,
		IPSource: netip.MustParseAddr("10.1.2.3"), IPDestination: netip.MustParseAddr("10.3.2.1"),
	}}, Step{Sequence: &Sequence{}}, Step{Timestamp: &Timestamp{Offset: 8}})
}

// TestNoAllocation: changing packets and adding messages does not allocate.
func TestNoAllocation(t *testing.T) {
	c, p := everything(t), insert(udp4(t), 12, 0x81, 0, 0, 1)
	s, err := NewSum(Float32)
	testenv.Must(t, err)
	a, b := make([]byte, 1024), make([]byte, 1024)
	if n := testing.AllocsPerRun(100, func() {
		c.Apply(p, 42)
		s.Add(a, b)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if st := c.Stats(); st[0].Changed != 101 || st[1].Changed != 101 || st[2].Changed != 101 || len(st[0].Left) != 0 {
		t.Errorf("counted %+v", st)
	}
}

func BenchmarkApply(b *testing.B) {
	c, p := everything(b), insert(udp4(b), 12, 0x81, 0, 0, 1)
	b.SetBytes(int64(len(p)))
	for range b.N {
		c.Apply(p, 42)
	}
}

func BenchmarkSum(b *testing.B) {
	for _, of := range []Type{Int32, Float64} {
		b.Run(string(of), func(b *testing.B) {
			s, err := NewSum(of)
			testenv.Must(b, err)
			dst, src := make([]byte, 4096), make([]byte, 4096)
			b.SetBytes(4096)
			for range b.N {
				s.Add(dst, src)
			}
		})
	}
}
