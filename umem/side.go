package umem

// Side has the data of a frame that is not in its bytes. There is one Side per frame, in memory
// beside the region that no device has registered. An extent uses the Side of its first frame.
// Only the owner of the frame may read or write it.
type Side struct {
	Block  uint64 // byte offset in the target, for block I/O
	Stamp  uint64 // time of arrival, nanoseconds of Clock
	Token  uint64 // for the flow, which gets it back with the frame
	Target uint32 // which file or device of a queue, for block I/O
	Queue  uint16 // which queue the frame came from
	Clock  Clock  // the clock of Stamp
}

// Clock is the source of an arrival time.
type Clock uint16

const (
	// SystemClock is the machine's clock: nanoseconds since 1970, UTC.
	SystemClock Clock = iota
	// CardClock is the network card's own clock. Its epoch depends on the program that set it.
	CardClock
)

// Side returns the entry of the frame or extent that contains f.Addr. The pointer is valid as long
// as the caller owns the frame.
func (r *Region) Side(f Frame) *Side { return &r.side[r.record(f.Addr)] }
