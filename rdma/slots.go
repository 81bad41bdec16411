package rdma

// slot is a supplied frame that a message of the peer's may land in.
type slot struct {
	addr   uint64 // where it lands
	length uint32
	used   bool
	told   bool // the peer has a credit for it
}

// slots are those of a port, by number.
type slots struct {
	list []slot
	free []uint32
	// untold are the numbers of those the peer is to be told of, in a ring.
	untold     []uint32
	head, tail uint32
}

func newSlots(n int) slots {
	s := slots{list: make([]slot, n), untold: make([]uint32, pow2(n))}
	for i := n - 1; i >= 0; i-- {
		s.free = append(s.free, uint32(i))
	}
	return s
}

// take makes a slot of a frame. There is one free.
func (s *slots) take(addr uint64, length uint32) {
	n := s.free[len(s.free)-1]
	s.free = s.free[:len(s.free)-1]
	s.list[n] = slot{addr: addr, length: length, used: true}
	s.untold[s.tail&uint32(len(s.untold)-1)] = n
	s.tail++
}

func (s *slots) give(n uint32) {
	s.list[n] = slot{}
	s.free = append(s.free, n)
}

// next is the slot to tell of next, if there is one.
func (s *slots) next() (uint32, bool) {
	return s.untold[s.head&uint32(len(s.untold)-1)], s.head != s.tail
}

// told notes that the next is told of.
func (s *slots) told() {
	n, _ := s.next()
	s.list[n].told = true
	s.head++
}

// credits are those of the peer's, in the order they came in.
type credits struct {
	list       []credit // a ring
	have       []bool   // by slot
	head, tail uint32
}

func newCredits(n int) credits { return credits{list: make([]credit, pow2(n)), have: make([]bool, n)} }

func (c *credits) len() int { return int(c.tail - c.head) }

func (c *credits) push(one credit) {
	c.have[one.slot] = true
	c.list[c.tail&uint32(len(c.list)-1)] = one
	c.tail++
}

func (c *credits) pop() credit {
	one := c.list[c.head&uint32(len(c.list)-1)]
	c.head++
	c.have[one.slot] = false
	return one
}
