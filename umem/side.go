package umem

// Side has the data of a frame that is not in its bytes. There is one Side per frame, in memory
// beside the region that no device has registered. An extent uses the Side of its first frame.
// Only the owner of the frame may read or write it.
type Side struct {
	Block  uint64 // byte offset in the target, for block I/O
	Stamp  uint64 // arrival, nanoseconds of Clock
	Token  uint64 // whatever the flow wants back with the frame
	Target uint32 // which file or device of a queue, for block I/O
	Queue  uint16 // which queue the frame came from
	Clock  Clock  // what Stamp was read from
}

// Clock is the source of an arrival time.
type Clock uint16

const (
	// SystemClock is the machine's: nanoseconds since 1970, UTC.
	SystemClock Clock = iota
	// CardClock is the network card's own. What it counts from only who set it knows.
	CardClock
)

// Side returns the entry of the frame or extent that holds f.Addr. The pointer is good for
// as long as the caller owns the frame.
func (r *Region) Side(f Frame) *Side { return &r.side[r.record(f.Addr)] }
