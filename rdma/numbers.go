package rdma

// numbers finds a port's queue pair by QPN: an open hash table, looked up once for each
// completion, made anew when a queue pair comes or goes.
type numbers struct {
	keys []uint32 // QPN + 1; 0: empty
	vals []int
}

func (t *numbers) set(senders []*sender) {
	size := pow2(2*len(senders) + 1)
	t.keys, t.vals = make([]uint32, size), make([]int, size)
	for n, s := range senders {
		if s != nil {
			i := t.slot(s.qpn)
			t.keys[i], t.vals[i] = s.qpn+1, n
		}
	}
}

// slot is where the QPN is, or would be. At least half of all places are empty.
func (t *numbers) slot(qpn uint32) uint32 {
	mask := uint32(len(t.keys) - 1)
	i := qpn * 0x9e3779b1 >> 7 & mask
	for t.keys[i] != 0 && t.keys[i] != qpn+1 {
		i = (i + 1) & mask
	}
	return i
}

// find is the number of the queue pair, -1 of one that is gone.
func (t *numbers) find(qpn uint32) int {
	if i := t.slot(qpn); t.keys[i] != 0 {
		return t.vals[i]
	}
	return -1
}
