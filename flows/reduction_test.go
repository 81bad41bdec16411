package flows

import (
	"testing"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/umem"
)

// TestSumTwice: a client that is gone with a part in a sum may be the one that comes with another session.
func TestSumTwice(t *testing.T) {
	region, err := umem.Open(umem.Config{Size: 8 << 20, Pages: umem.Ordinary})
	if err != nil {
		t.Fatal(err)
	}
	defer region.Close()
	r, err := openReduction([]config.Stage{{Sum: &config.Sum{Type: "int32"}}}, region, 2, 16)
	if err != nil {
		t.Fatal(err)
	}
	f := umem.Frame{Len: protocol.HeaderLen + 4}
	if _, fits := r.add(f, 0); !fits {
		t.Fatal("the first part does not fit")
	}
	gone := func(number uint16) bool { return number == 0 }
	here := func(uint16) bool { return false }
	if !r.twice(1, gone) || r.twice(1, here) || r.twice(0, gone) {
		t.Error("the sum takes a part twice, or not once")
	}
}
