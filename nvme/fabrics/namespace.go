package fabrics

// Namespace is one namespace as hosts see it.
type Namespace struct {
	ID        uint32 // from 1
	Size      uint64 // bytes
	Shift     uint8  // log2 of the block size: 9 for 512 bytes
	ReadOnly  bool
	UUID      [16]byte
	Discard   bool // it supports discards
	Zeroes    bool
	Preferred uint32   // preferred size of writes, in blocks; 0: not known
	ANA       ANAState // 0: ANAOptimized; SetANA changes it
	// Reservations is the state of the namespace; nil: no persistent reservations. Whoever changes it
	// replaces it, so that other threads may read the one that they have.
	Reservations *Reservations

	anaChanges uint64 // of the state
}

// Blocks returns the number of blocks. An incomplete block at the end is not served.
func (n *Namespace) Blocks() uint64 { return n.Size >> n.Shift }

// Range is a range of bytes of a namespace.
type Range struct{ Offset, Length uint64 }

// FUA reports whether a write must be on stable storage before it is answered.
func (c *Command) FUA() bool { return c.Words[2]&(1<<30) != 0 }

// blocks returns the range of a command's starting LBA and number of blocks.
func (n *Namespace) blocks(c *Command) (Range, Status) {
	return n.Span(uint64(c.Words[0])|uint64(c.Words[1])<<32, uint64(c.Words[2]&0xffff)+1)
}

// Span returns the range of count blocks from the block first on.
func (n *Namespace) Span(first, count uint64) (Range, Status) {
	if all := n.Blocks(); first >= all || count > all-first {
		return Range{}, LBAOutOfRange | DoNotRetry
	}
	return Range{first << n.Shift, count << n.Shift}, Success
}

// Check checks a read, write, compare or Write Zeroes. It returns the range of bytes, or why the
// command is refused. most is the longest transfer in bytes.
func (n *Namespace) Check(c *Command, most uint32) (Range, Status) {
	if n.ReadOnly && (c.Opcode == OpWrite || c.Opcode == OpWriteZeroes) {
		return Range{}, WriteProtected | DoNotRetry
	}
	r, s := n.blocks(c)
	switch {
	case s != Success:
	case c.Opcode == OpWriteZeroes:
		if c.Data.Place != Nowhere {
			s = InvalidSGLLength | DoNotRetry
		}
	case r.Length > uint64(most):
		s = InvalidField | DoNotRetry
	case uint64(c.Data.Length) != r.Length:
		s = InvalidSGLLength | DoNotRetry
	}
	return r, s
}

// Dataset decodes a Dataset Management command: how many ranges its data has, and whether to deallocate
// them. The data may be longer than the ranges; the kernel's initiator always sends the largest size.
func (n *Namespace) Dataset(c *Command) (ranges int, discard bool, s Status) {
	ranges, discard = int(c.Words[0]&0xff)+1, c.Words[1]&(1<<2) != 0
	switch {
	case discard && n.ReadOnly:
		s = WriteProtected | DoNotRetry
	case c.Data.Length < uint32(ranges*DatasetRangeLen) || c.Data.Length > datasetLen:
		s = InvalidSGLLength | DoNotRetry
	}
	return ranges, discard, s
}

// DatasetRangeLen is the length of one range of a Dataset Management command, and datasetLen that
// of the largest number of ranges, in bytes.
const (
	DatasetRangeLen = 16
	datasetLen      = 256 * DatasetRangeLen
)

// DatasetRange decodes one range of the data of a Dataset Management command. It may be empty.
func (n *Namespace) DatasetRange(b []byte) (Range, Status) {
	first, count := le.Uint64(b[8:]), uint64(le.Uint32(b[4:]))
	if count == 0 {
		return Range{}, Success
	}
	return n.Span(first, count)
}
