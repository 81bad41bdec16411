package tcpsend

// Reason says why a payload does not leave in a segment of ours. It is an index, and a word in metrics.
type Reason uint8

// With the reasons before Window the payload goes the kernel's way at once. With Window and those after it, it has to
// wait: the kernel could not transmit it now either.
const (
	None        Reason = iota
	NoPath             // the neighbour that gets the segment is not known
	NoEcho             // the peer's last timestamp is not known yet
	Options            // ECN or timestamps in microseconds are in use
	OldKernel          // the kernel has no tcx: it is older than Linux 6.6
	TooLong            // it is longer than a segment may be
	Recovery           // the kernel recovers from a loss
	OtherWay           // packets of the peer arrive by another interface, where nothing lowers their acknowledgements
	Early              // an acknowledgement came before the kernel knew what it acknowledges
	NoRepair           // the kernel refuses repair mode
	SmallWindow        // the peer's window is too small, and nothing is under way that could open it
	Window             // the peer's window is full
	Congestion         // the congestion window is full
	Buffer             // too much is not acknowledged
	Unsent             // the kernel has not transmitted what it got before
	Unbooked           // a segment has left that the kernel has not taken into its queue yet
	Closed             // the connection is not established any more
	Reasons            // how many there are
)

var reasons = [Reasons]string{
	"none", "no_path", "no_timestamp", "options", "old_kernel", "too_long", "recovery", "other_way", "early", "no_repair", "small_window",
	"window", "congestion", "buffer", "unsent", "unbooked", "closed",
}

func (r Reason) String() string { return reasons[r] }

// Waits reports whether the payload must wait.
func (r Reason) Waits() bool { return r >= Window }
