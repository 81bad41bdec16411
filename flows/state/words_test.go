//go:build !race

package state

import (
	"errors"
	"maps"
	"sync"
	"testing"

	"github.com/unifiedd/unifiedd/flows/attach/wire"
	"github.com/unifiedd/unifiedd/flows/client"
	"github.com/unifiedd/unifiedd/rdma"
)

// The race detector does not know that operations of a device order what peers do.

// TestWords: peers count with one word, and take turns with another one. A program of the host sees what they left. They
// cannot change the head, and a flow cannot use the state.
func TestWords(t *testing.T) {
	const peers, rounds = 3, 300
	g := newRig(t, peers, nil, Config{Name: "locks", Words: 4})
	s := g.set.Find("locks")
	if _, err := s.Use(); err == nil {
		t.Error("a flow may update words")
	}
	var all sync.WaitGroup
	seen, inside := make([]map[uint64]bool, peers), 0
	for i := range peers {
		p := g.reader(0)
		seen[i] = map[uint64]bool{}
		all.Go(func() {
			for range rounds {
				before, err := p.FetchAdd(1, 1)
				if err != nil {
					t.Error(err)
					return
				}
				seen[i][before] = true
			}
			for range 20 {
				for {
					holder, err := p.CompareSwap(3, 0, uint64(i+1))
					if err != nil {
						t.Error(err)
						return
					}
					if holder == 0 {
						break
					}
				}
				inside++
				if holder, err := p.CompareSwap(3, uint64(i+1), 0); err != nil || holder != uint64(i+1) {
					t.Errorf("peer %d held the lock, and %d has it: %v", i+1, holder, err)
				}
			}
			if _, err := p.Word(4); !errors.Is(err, client.ErrWord) {
				t.Errorf("word 4 of 4: %v", err)
			}
			if _, _, err := p.Get(0, nil); !errors.Is(err, client.ErrKind) {
				t.Errorf("an object of words: %v", err)
			}
		})
	}
	all.Wait()
	union := map[uint64]bool{}
	for _, m := range seen {
		maps.Copy(union, m)
	}
	if len(union) != peers*rounds || inside != peers*20 {
		t.Errorf("%d numbers were drawn, and %d are different; %d turns were taken", peers*rounds, len(union), inside)
	}
	view, err := wire.ReadState(g.region.At(s.Part().Base(), s.Size()))
	g.must(err)
	if view.Word(0) != 0 || view.Word(1) != peers*rounds || view.Word(3) != 0 {
		t.Errorf("the words are %d, %d, %d", view.Word(0), view.Word(1), view.Word(3))
	}
}

// TestWordsGrant: a peer that breaks the rules can change the words by atomic operations, and nothing else.
func TestWordsGrant(t *testing.T) {
	g := newRig(t, 64, nil, Config{Name: "locks", Words: 4})
	s := g.set.Find("locks")
	before := string(g.region.At(s.Part().Base(), s.Size()))
	w := newRaw(g)
	head, words := w.grant, g.servers[0].words
	if head.Length != wire.StateHeadLen || head.Access != rdma.RemoteRead {
		t.Fatalf("granted %+v", head)
	}
	from, key := words.Addr(), words.RKey()
	for name, one := range map[string]struct {
		r      rdma.SendRequest
		length uint32
	}{
		"fetch-and-add on the head":       {rdma.SendRequest{Op: rdma.FetchAdd, RemoteAddr: head.Addr + 24, RKey: head.RKey, Compare: 1}, 8},
		"the same with the words' key":    {rdma.SendRequest{Op: rdma.FetchAdd, RemoteAddr: head.Addr + 24, RKey: key, Compare: 1}, 8},
		"compare-and-swap behind the end": {rdma.SendRequest{Op: rdma.CompareSwap, RemoteAddr: from + words.Length(), RKey: key, Swap: 1}, 8},
		"WRITE":                           {rdma.SendRequest{Op: rdma.Write, RemoteAddr: from, RKey: key}, 8},
	} {
		w.connect(0)
		if w.do(one.r, one.length); w.status == rdma.Success {
			t.Errorf("%s succeeds", name)
		}
	}
	if after := string(g.region.At(s.Part().Base(), s.Size())); after != before {
		t.Error("the memory has changed")
	}
	w.connect(0)
	if w.do(rdma.SendRequest{Op: rdma.FetchAdd, RemoteAddr: from + 64, RKey: key, Compare: 7}, 8); w.status != rdma.Success {
		t.Errorf("fetch-and-add on a word: %v", w.status)
	}
}
