package umem

import (
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestBeside: a holder can take out frames that a holder beside it, of another book, put in. The
// sums are right at each moment, also when one of them yields.
func TestBeside(t *testing.T) {
	r, _, worker, ring := worldOf(t, Config{Size: 1 << 20})
	other := r.NewBook("other")
	hands := newHolder(t, other, OwnerWorker)
	same, err := other.NewSharedHolder(ring, "other end")
	testenv.Must(t, err)
	fs := take(t, worker, 100)
	worker.PassTo(ring, fs)
	same.PassTo(hands, fs[:30])
	wantHeld(t, ring, 100)
	wantHeld(t, same, -30)
	want := Count{OwnerPool: 156, OwnerWorker: 30, OwnerXDP: 70}
	if c := audit(t, r); c != want {
		t.Errorf("audit counts %v", c)
	}
	other.Publish() // only one of them
	if c := r.Snapshot(); c.Sum() != r.Frames() {
		t.Errorf("snapshot counts %v", c)
	}
	ring.Merge(same)
	wantHeld(t, same, 70)
	if c := r.Snapshot(); c != want {
		t.Errorf("snapshot counts %v", c)
	}
	if n := same.Close(); n != 70 {
		t.Errorf("closing gave %d frames back", n)
	}
	hands.Give(fs[:30])
	if c := audit(t, r); c.Of(OwnerPool) != r.Frames() {
		t.Errorf("audit counts %v", c)
	}
	if _, err := other.NewSharedHolder(same, "late"); err == nil {
		t.Error("a place beside a closed one")
	}
	testenv.Check(t, other.Close())
}

// TestBesideThatFails: closing a holder that has counted nothing does not change the shared frames.
func TestBesideThatFails(t *testing.T) {
	r, _, worker, ring := worldOf(t, Config{Size: 1 << 20})
	other := r.NewBook("other")
	same, err := other.NewSharedHolder(ring, "other end")
	testenv.Must(t, err)
	fs := take(t, worker, 10)
	worker.PassTo(ring, fs)
	if n := same.Close(); n != 0 {
		t.Errorf("it gave %d frames back", n)
	}
	testenv.Check(t, other.Close())
	if c := audit(t, r); c.Of(OwnerXDP) != 10 {
		t.Errorf("audit counts %v", c)
	}
	ring.Close()
	if _, err := r.NewBook("third").NewSharedHolder(ring, "late"); err == nil {
		t.Error("a place beside a closed one")
	}
}
