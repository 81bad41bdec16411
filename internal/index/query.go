package index

import (
	"sort"

	"github.com/unifiedd/unifiedd/internal/need"
	"github.com/unifiedd/unifiedd/internal/pcapng"
)

// Query selects packets by time and by a filter's need.
type Query struct {
	From, To uint64    // nanoseconds since the epoch: from on, and before; 0: no bound
	Need     need.Need // the zero value: nothing
}

// set is a set of blocks of a section.
type set []uint64

func newSet(n int) set       { return make(set, (n+63)/64) }
func (s set) put(i int)      { s[i/64] |= 1 << (i % 64) }
func (s set) has(i int) bool { return s[i/64]>>(i%64)&1 != 0 }
func (s set) and(o set)      { s.each(o, func(a, b uint64) uint64 { return a & b }) }
func (s set) or(o set)       { s.each(o, func(a, b uint64) uint64 { return a | b }) }
func (s set) each(o set, f func(a, b uint64) uint64) {
	for i := range s {
		s[i] = f(s[i], o[i])
	}
}

// find adds the parts of a section that may have wanted packets. Adjacent parts become one.
func (q *Query) find(s stored, parts []pcapng.Part) []pcapng.Part {
	may := s.meet(&q.Need)
	for i, b := range s.blocks {
		if b.last < q.From || q.To != 0 && b.first >= q.To || may != nil && !b.unsure && !may.has(i) {
			continue
		}
		if n := len(parts); n > 0 && parts[n-1].Offset+parts[n-1].Length == b.offset {
			parts[n-1].Length += int64(b.length)
			continue
		}
		parts = append(parts, pcapng.Part{Offset: b.offset, Length: int64(b.length)})
	}
	return parts
}

// meet returns the set of blocks that have a need; nil means that nothing is needed.
func (s *stored) meet(n *need.Need) set {
	switch n.Kind {
	case need.Nothing:
		return nil
	case need.All:
		return s.all(n.Kids)
	case need.Any:
		found := newSet(len(s.blocks))
		for i := range n.Kids {
			found.or(s.meet(&n.Kids[i]))
		}
		return found
	}
	return s.having(hashNeed(n))
}

// all returns the set of blocks that have all needs. If two needs are addresses, the blocks must also have
// the pair.
func (s *stored) all(kids []need.Need) set {
	var found set
	var pair []uint64
	for i := range kids {
		found = both(found, s.meet(&kids[i]))
		if kids[i].Kind == need.Address {
			pair = append(pair, hashNeed(&kids[i]))
		}
	}
	if len(pair) == 2 && pair[0] != pair[1] {
		found = both(found, s.having(hashPair(pair[0], pair[1])))
	}
	return found
}

func both(a, b set) set {
	if a == nil {
		return b
	}
	a.and(b)
	return a
}

// having returns the set of blocks that have a key, or one with the same short hash.
func (s *stored) having(h uint64) set {
	found, want := newSet(len(s.blocks)), short(h)
	n := len(s.hashes) / 4
	for i := sort.Search(n, func(i int) bool { return le.Uint32(s.hashes[4*i:]) >= want }); i < n && le.Uint32(s.hashes[4*i:]) == want; i++ {
		found.put(int(le.Uint16(s.places[2*i:])))
	}
	return found
}

// hashNeed returns the key of a need without kids.
func hashNeed(n *need.Need) uint64 {
	switch n.Kind {
	case need.Address:
		return hashAddress(n.Address)
	case need.Port:
		return hash1(kindPort, uint64(n.Number))
	case need.Protocol:
		return hash1(kindProtocol, uint64(n.Number))
	case need.VLAN:
		return hash1(kindVLAN, uint64(n.Number))
	}
	return hash1(kindEtherType, uint64(n.Number))
}
