package blocks

import "github.com/unifiedd/unifiedd/umem"

// bufferCache holds the buffers of one size. Every buffer is empty, has a piece of the target, or
// is the destination of a read.
type bufferCache struct {
	size    uint64 // bytes of a buffer
	keep    bool   // read data stays, and find finds it by its offset
	aligned bool   // offsets are multiples of the size
	buffers []buffer
	heads   []int32      // by hash of the offset: the first of a chain of buffers
	empty   []int32      // a stack
	hand    int          // of the CLOCK algorithm: the next buffer to examine for eviction
	worker  *umem.Holder // holds the empty buffers
	// share counts the buffers in use by client, and guarantees a reserve to each. A buffer that
	// several operations use counts once for each.
	share share
	count cacheCounters

	kept  []indexed    // buffers with data of an earlier server, until takeOver
	spare []umem.Frame // buffers of an earlier server whose data is not used, until takeOver
}

// buffer is a frame or an extent.
type buffer struct {
	start   uint64 // address in the region
	at      uint64 // offset of the first byte on the target
	length  uint32 // bytes from there on; 0: empty
	users   int32  // pieces of operations that use it
	writes  int32  // number of users that are being written to their clients
	next    int32  // in its chain
	waiting int32  // the first piece that waits for the read
	reading bool
	found   bool // it is in a chain
	recent  bool // used since the hand passed
	holder  *umem.Holder
}

const none = int32(-1)

// fill makes empty buffers from frames that the worker holds.
func (s *bufferCache) fill(frames []umem.Frame, worker *umem.Holder) {
	s.worker = worker
	s.buffers, s.empty = make([]buffer, len(frames)), make([]int32, 0, len(frames))
	chains := 1
	for chains < len(frames) {
		chains *= 2
	}
	s.heads = make([]int32, chains)
	for i := range s.heads {
		s.heads[i] = none
	}
	for i, f := range frames {
		s.buffers[i] = buffer{start: f.Addr, waiting: none, next: none, holder: worker}
		s.empty = append(s.empty, int32(i))
	}
}

// chain returns the head of the chain for an offset.
func (s *bufferCache) chain(at uint64) *int32 {
	h := at * 0x9e3779b97f4a7c15
	return &s.heads[h>>32&uint64(len(s.heads)-1)]
}

// find returns the buffer that has the piece at an offset, or that is being filled with it; or
// none.
func (s *bufferCache) find(at uint64) int32 {
	for i := *s.chain(at); i != none; i = s.buffers[i].next {
		if s.buffers[i].at == at {
			return i
		}
	}
	return none
}

// list adds a buffer to its chain, so that find finds it.
func (s *bufferCache) list(i int32) {
	b, head := &s.buffers[i], s.chain(s.buffers[i].at)
	b.next, b.found = *head, true
	*head = i
}

// forget removes a buffer from its chain. The buffer becomes empty when no operation uses it.
func (s *bufferCache) forget(i int32) {
	b := &s.buffers[i]
	if !b.found {
		return
	}
	p := s.chain(b.at)
	for *p != i {
		p = &s.buffers[*p].next
	}
	*p, b.next, b.found = b.next, none, false
	if b.users == 0 {
		s.discard(i)
	}
}

// discard makes a buffer empty.
func (s *bufferCache) discard(i int32) {
	s.buffers[i].length = 0
	s.hold(i, s.worker)
	s.empty = append(s.empty, i)
}

// take returns an empty buffer. share must have allowed the use, which guarantees that there is an
// empty or unused buffer.
func (s *bufferCache) take() int32 {
	if len(s.empty) == 0 {
		s.evict()
	}
	last := len(s.empty) - 1
	i := s.empty[last]
	s.empty = s.empty[:last]
	return i
}

// evict empties the next buffer that is not in use and was not used since the hand last passed.
func (s *bufferCache) evict() {
	for range 2 * len(s.buffers) {
		i := int32(s.hand)
		if s.hand++; s.hand == len(s.buffers) {
			s.hand = 0
		}
		switch b := &s.buffers[i]; {
		case b.users > 0:
		case b.recent:
			b.recent = false
		default:
			s.count.evicted.Add(1)
			s.forget(i)
			return
		}
	}
}

// invalidate forgets the buffers that overlap n bytes from an offset on.
func (s *bufferCache) invalidate(offset, n uint64) {
	switch {
	case !s.keep || len(s.buffers) == 0:
		return
	case s.aligned && n/s.size < uint64(len(s.buffers)):
		for at := offset &^ (s.size - 1); at < offset+n; at += s.size {
			if i := s.find(at); i != none {
				s.forget(i)
			}
		}
		return
	}
	for i := range s.buffers {
		if b := &s.buffers[i]; b.found && b.at < offset+n && offset < b.at+uint64(b.length) {
			s.forget(int32(i))
		}
	}
}

// hold passes a buffer to another holder.
func (s *bufferCache) hold(i int32, to *umem.Holder) {
	b := &s.buffers[i]
	if b.holder != to {
		one := [1]umem.Frame{{Addr: b.start}}
		b.holder.PassTo(to, one[:])
		b.holder = to
	}
}

// share counts buffers in use by client, and keeps a reserve for each client. A buffer in use by
// several operations counts once for each.
type share struct {
	total, reserve int
	held           []int // by client
	sum            int   // of held
	owed           int   // sum of the unused reserves
}

func newShare(p cachePlan, clients int) share {
	return share{total: p.buffers, reserve: p.reserve, held: make([]int, clients), owed: p.reserve * clients}
}

// take counts n more buffers for a client. It returns false if they are not available now.
func (s *share) take(client, n int) bool {
	was := s.held[client]
	owed := s.owed - s.missing(was) + s.missing(was+n)
	if s.sum+n+owed > s.total {
		return false
	}
	s.held[client], s.sum, s.owed = was+n, s.sum+n, owed
	return true
}

// give returns n buffers.
func (s *share) give(client, n int) {
	was := s.held[client]
	s.owed += s.missing(was-n) - s.missing(was)
	s.held[client], s.sum = was-n, s.sum-n
}

// missing returns the unused reserve of a client that holds held buffers.
func (s *share) missing(held int) int { return max(0, s.reserve-held) }
