//go:build !race

package state

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/attach/wire"
	"github.com/unifiedd/unifiedd/flows/client"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/setting"
	"github.com/unifiedd/unifiedd/rdma"
)

// The race detector would report what these tests are about: a device that reads what a writer writes.

// remoteReads returns how many reads a test does: make test-long SUITE=state gives more.
func remoteReads(t *testing.T) int {
	few := uint64(20000)
	if testing.Short() {
		few = 2000
	}
	return int(setting.Number(t, "UNIFIEDD_REMOTE_READS", few))
}

// whileWritten runs a function while another goroutine applies updates at full rate.
func whileWritten(s *State, update func(n uint64) []byte, f func()) {
	var stop atomic.Bool
	var writing sync.WaitGroup
	writing.Go(func() {
		for n := uint64(0); !stop.Load(); n++ {
			s.Apply(update(n))
			if n%64 == 0 {
				s.Publish()
				runtime.Gosched()
			}
		}
	})
	f()
	stop.Store(true)
	writing.Wait()
}

// words makes a payload of words that all have the same number.
func words(b []byte, n uint64) []byte {
	for i := 0; i < len(b); i += 8 {
		binary.NativeEndian.PutUint64(b[i:], n)
	}
	return b
}

// mixed returns an error for a payload whose words differ.
func mixed(b []byte) error {
	for i := 8; i < len(b); i += 8 {
		if first, got := binary.NativeEndian.Uint64(b), binary.NativeEndian.Uint64(b[i:]); got != first {
			return fmt.Errorf("it begins with %d, and has %d at byte %d", first, got, i)
		}
	}
	return nil
}

// TestTornREADs: a peer that READs objects of several packets while they are written at full rate never gets a mixture
// of two writes, and sees conflicts. Without the checksum it gets mixtures.
func TestTornREADs(t *testing.T) {
	const objects, room = 16, 2096
	g := newRig(t, 4, nil, Config{Name: "book", Objects: objects, Room: room})
	s, b := g.set.Find("book"), g.reader(0)
	payload, message := make([]byte, room), make([]byte, 0, room+wire.UpdateHeader)
	update := func(n uint64) []byte { return wire.AppendPutObject(message[:0], n%objects, words(payload, n)) }
	for n := range uint64(objects) {
		s.Apply(update(n))
	}
	reads, again, retried, slowest, begun := remoteReads(t), 0, 0, time.Duration(0), time.Now()
	whileWritten(s, update, func() {
		r, dst, last := rand.New(rand.NewPCG(1, 2)), make([]byte, room), [objects]uint64{}
		for range reads {
			i, before := r.Uint64N(objects), time.Now()
			n, version, err := b.Get(i, dst)
			took := time.Since(before)
			if slowest = max(slowest, took); took > 200*time.Millisecond {
				retried++
			}
			if errors.Is(err, client.ErrAgain) {
				again++
				continue
			}
			if err == nil {
				err = mixed(dst[:n])
			}
			if err != nil || n != room || version < last[i] {
				t.Errorf("object %d of %d bytes, version %d after %d: %v", i, n, version, last[i], err)
				return
			}
			last[i] = version
		}
		seen := 0
		for end := time.Now().Add(testenv.Within(20 * time.Second)); b.Conflicts() == 0 && time.Now().Before(end); seen++ {
			_, _, _ = b.Get(r.Uint64N(objects), dst)
		}
	})
	t.Logf("%d READs of %d bytes in %v, the slowest took %v, %d more than 200 ms: %d conflicts, %d were given up", reads, room+wire.ObjectHeader, time.Since(begun), slowest, retried, b.Conflicts(), again)
	if b.Conflicts() == 0 {
		t.Error("no conflict was seen")
	}
	g.must(b.Close())
	raw := newRaw(g)
	found := 0
	whileWritten(s, update, func() {
		head := wire.ObjectsHead(objects, room, 1)
		for end := time.Now().Add(testenv.Within(20 * time.Second)); found == 0 && time.Now().Before(end); {
			o := raw.read(raw.grant.Addr+head.At(uint64(found)%objects), room+wire.ObjectHeader)
			if raw.status == rdma.Success && mixed(o[wire.ObjectHeader:]) != nil {
				found++
			}
		}
	})
	if found == 0 {
		t.Error("without the checksum no mixture was read: the test cannot fail")
	}
}

// TestTornREADsOfKeys: a peer finds each key that is there while the writer moves entries, with a value of one write.
func TestTornREADsOfKeys(t *testing.T) {
	const kept, others = 32, 60
	g := newRig(t, 4, nil, Config{Name: "refs", Keys: 48})
	s, refs := g.set.Find("refs"), g.reader(0)
	value, message, r := make([]byte, 96), make([]byte, 0, 200), rand.New(rand.NewPCG(3, 4))
	var key []byte
	update := func(n uint64) []byte {
		if n%2 == 0 {
			key = fmt.Appendf(key[:0], "kept%d", n/2%kept)
			return wire.AppendPutKey(message[:0], key, words(value, n))
		}
		key = fmt.Appendf(key[:0], "other%d", r.IntN(others))
		if r.IntN(3) == 0 {
			return wire.AppendDeleteKey(message[:0], key)
		}
		return wire.AppendPutKey(message[:0], key, value[:8])
	}
	for n := range uint64(kept) {
		s.Apply(update(2 * n)) // before others take their places
	}
	reads, again := remoteReads(t), 0
	whileWritten(s, update, func() {
		r, dst := rand.New(rand.NewPCG(5, 6)), make([]byte, 120)
		for i := 0; i < reads || refs.Conflicts() == 0 && i < 100*reads; i++ {
			name := fmt.Appendf(nil, "kept%d", r.IntN(kept))
			n, err := refs.Lookup(name, dst)
			if errors.Is(err, client.ErrAgain) {
				again++
				continue
			}
			if err == nil {
				err = mixed(dst[:n])
			}
			if err != nil {
				t.Errorf("key %s of %d bytes: %v", name, n, err)
				return
			}
		}
	})
	t.Logf("%d keys: %d conflicts, %d were given up", reads, refs.Conflicts(), again)
	if refs.Conflicts() == 0 {
		t.Error("no conflict was seen")
	}
}
