package relay

import (
	"encoding/binary"
	"testing"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
)

// TestSumTwice: a sum does not add a participant's part again after the participant begins a new
// session, and waits for the other participants.
func TestSumTwice(t *testing.T) {
	region, err := umem.Open(umem.Config{Size: 8 << 20, Pages: umem.Ordinary})
	testenv.Must(t, err)
	defer region.Close()
	r, err := NewReducer([]config.Stage{{Sum: &config.Sum{Type: "int32"}}}, region, 2, 16)
	testenv.Must(t, err)
	addr := uint64(0)
	gives := func(participant int, session uint16, sequence uint64, value uint32) (added bool) {
		t.Helper()
		f := umem.Frame{Addr: addr, Len: protocol.HeaderLen + 4}
		addr += 4096
		b := region.Bytes(f)
		binary.BigEndian.PutUint64(b[8:], sequence)
		binary.LittleEndian.PutUint32(b[protocol.HeaderLen:], value)
		region.Side(f).Queue = session
		if _, ok := r.has(participant); ok {
			r.repeat(participant)
			return false
		}
		if _, fits := r.add(f, participant, 0); !fits {
			t.Fatal("it does not fit")
		}
		return true
	}
	complete := func(want uint32) {
		t.Helper()
		p := r.complete()
		if p == nil || binary.LittleEndian.Uint32(region.Bytes(p.frame)) != want {
			t.Fatalf("the sum is %+v, want %d", p, want)
		}
		r.sent++
	}
	r.Join(0)
	gives(0, 0, 1, 100)
	gives(0, 0, 2, 101)
	r.Join(0) // the participant restarts
	if gives(0, 2, 1, 100) || r.complete() != nil {
		t.Fatal("the sum has the first participant's part twice")
	}
	r.Join(1)
	gives(1, 1, 1, 1000)
	complete(1100)
	r.Join(0) // it restarts again, before the sum is acknowledged
	if gives(0, 3, 1, 100) || gives(0, 3, 2, 101) || !gives(0, 3, 3, 102) {
		t.Error("sums have parts twice, or lack them")
	}
	gives(1, 1, 2, 1001)
	complete(1102)
	gives(1, 1, 3, 1002)
	complete(1104)
	r.Join(1)
	r.acknowledged = 3 // the sum is acknowledged before the participant resends
	if gives(1, 4, 1, 1000) || gives(1, 4, 2, 1001) || gives(1, 4, 3, 1002) || !gives(1, 4, 4, 1003) || r.duplicates.Load() != 6 {
		t.Errorf("sums that are acknowledged are begun again; %d duplicates", r.duplicates.Load())
	}
}
