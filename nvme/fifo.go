package nvme

// fifo is a queue of operation numbers with room for all of them.
type fifo struct {
	items      []uint32
	head, tail uint32
}

func newFifo(depth int) fifo { return fifo{items: make([]uint32, pow2(uint32(depth)))} }

func (f *fifo) empty() bool { return f.head == f.tail }

func (f *fifo) push(i uint32) {
	f.items[f.tail&uint32(len(f.items)-1)] = i
	f.tail++
}

func (f *fifo) first() uint32 { return f.items[f.head&uint32(len(f.items)-1)] }

func (f *fifo) drop() { f.head++ }
