package trace

import "fmt"

// The layout of a file: doc.go.
const (
	magic      = "uFLIGHT1"
	headerLen  = 4096
	nameAt     = 192
	versionAt  = 256
	textLen    = 64 // room for the name, and for the version
	roundLen   = 32
	noteLen    = 128
	noteText   = 104
	notesKept  = 256
	mostRounds = 1 << 20

	// Suffix ends the names of the files.
	Suffix = ".trace"
)

// MinEvents and MaxEvents bound the rounds of a flow that are kept, a power of two.
const (
	MinEvents = 64
	MaxEvents = mostRounds
)

// header is the beginning of a file. All but live and notes is written before anybody reads it.
type header struct {
	magic               [8]byte
	rounds, notes       uint32
	pid                 uint32
	nameLen, versionLen uint16
	started             int64
	_                   [32]byte
	live                live
	_                   [16]byte
	noted               uint64 // number of notes so far; written with the recorder's lock held
	_                   [56]byte
}

// live is what the worker does now. Only the thread that polls the flow writes it, and a flow that ends.
type live struct {
	step           uint64
	at             int64  // when the round began
	rounds         uint64 // so far
	packets, bytes uint64 // received until the last record
	recorded       uint64 // number of records so far, stored after the record
}

// roundRecord is one round in the ring. Only the thread that polls the flow writes it.
type roundRecord struct {
	at             int64
	packets, bytes uint32
	since          uint32 // nanoseconds since the round before began
	held           uint32
	flags          uint32
	_              uint32
}

// noteRecord is one note in the ring. It is written with the recorder's lock held.
type noteRecord struct {
	at    int64
	value uint64
	kind  uint16
	len   uint16
	_     uint32
	text  [noteText]byte
}

// Step is a part of a round.
type Step uint64

// The steps, in the order of a round of a flow with a source and a sink. Their numbers are in files.
const (
	Stopped     Step = 0 // no worker polls the flow
	Between     Step = 1 // the worker polls other flows, or waits
	Reap        Step = 2
	Receive     Step = 3
	Flush       Step = 4
	Acknowledge Step = 5
	Supply      Step = 6
	Kick        Step = 7
	Serve       Step = 8 // a round of a flow that is not made of a source and a sink
)

var steps = [...]string{
	Stopped: "stopped", Between: "between two rounds", Reap: "taking back what its sink had done", Receive: "receiving, and passing on what was received",
	Flush: "sending a batch that waited", Acknowledge: "acknowledging", Supply: "giving frames back to its source", Kick: "waking its devices", Serve: "serving requests",
}

// String returns what the flow does in the step.
func (s Step) String() string {
	if s < Step(len(steps)) {
		return steps[s]
	}
	return fmt.Sprintf("in step %d, which this release does not know", uint64(s))
}

// Flags of a round.
const (
	Blocked uint32 = 1 << 0 // the sink took no more
	Paused  uint32 = 1 << 1 // the flow held as many frames as it may, and received nothing
	Failing uint32 = 1 << 2 // the flow has failed, and takes back what is in flight
)

// Kind is the kind of a note.
type Kind uint16

// The kinds. Their numbers are in files.
const (
	State     Kind = 1 // the flow is in another state; the text has it and why
	Lost      Kind = 2 // packets were lost; the text is the reason
	DiskError Kind = 3 // operations of the disk failed; the text is the reason
	PeerLost  Kind = 4 // peers did not get messages; the text is the reason
)

var kinds = [...]string{State: "state", Lost: "lost", DiskError: "disk_error", PeerLost: "peer_lost"}

// String returns a word.
func (k Kind) String() string {
	if int(k) < len(kinds) && kinds[k] != "" {
		return kinds[k]
	}
	return fmt.Sprintf("kind_%d", uint16(k))
}

// fileLen returns the length of a file with that many records.
func fileLen(rounds, notes uint32) int64 {
	return headerLen + int64(rounds)*roundLen + int64(notes)*noteLen
}
