package rdma

// grantTable finds a grant's place by address: an open hash table.
type grantTable struct {
	keys []uint64
	vals []int32 // place + 1; 0: empty
}

func newGrantTable(most int) grantTable {
	size := pow2(2*most + 1)
	return grantTable{keys: make([]uint64, size), vals: make([]int32, size)}
}

func (t *grantTable) home(addr uint64) uint32 {
	return uint32(addr*0x9e3779b97f4a7c15>>32) & uint32(len(t.keys)-1)
}

// slot is where the address is, or would be. At least half of all slots are empty.
func (t *grantTable) slot(addr uint64) uint32 {
	i := t.home(addr)
	for t.vals[i] != 0 && t.keys[i] != addr {
		i = (i + 1) & uint32(len(t.keys)-1)
	}
	return i
}

// find is the place of the address, or -1.
func (t *grantTable) find(addr uint64) int32 { return t.vals[t.slot(addr)] - 1 }

func (t *grantTable) add(addr uint64, place int32) {
	i := t.slot(addr)
	t.keys[i], t.vals[i] = addr, place+1
}

// remove empties the slot of an address, and has those behind it move up that would not be
// found any more.
func (t *grantTable) remove(addr uint64) {
	mask := uint32(len(t.keys) - 1)
	hole := t.slot(addr)
	for i := (hole + 1) & mask; t.vals[i] != 0; i = (i + 1) & mask {
		if home := t.home(t.keys[i]); (i-home)&mask >= (i-hole)&mask {
			t.keys[hole], t.vals[hole] = t.keys[i], t.vals[i]
			hole = i
		}
	}
	t.vals[hole] = 0
}

// grantList is the grants that are only kept, in the order they were released in.
type grantList struct{ oldest, newest int32 }

func newGrantList() grantList { return grantList{-1, -1} }

func (l *grantList) add(entries []grantEntry, n int32) {
	e := &entries[n]
	e.older, e.newer = l.newest, -1
	if l.newest >= 0 {
		entries[l.newest].newer = n
	} else {
		l.oldest = n
	}
	l.newest = n
}

func (l *grantList) remove(entries []grantEntry, n int32) {
	e := &entries[n]
	if e.older >= 0 {
		entries[e.older].newer = e.newer
	} else {
		l.oldest = e.newer
	}
	if e.newer >= 0 {
		entries[e.newer].older = e.older
	} else {
		l.newest = e.older
	}
}
