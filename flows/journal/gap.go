package journal

import (
	"errors"
	"fmt"
)

var (
	// ErrMissing is in a Gap whose records are not where they must be.
	ErrMissing = errors.New("not there")
	// ErrRemoved is in a Gap whose records were in segments that are not kept any more.
	ErrRemoved = errors.New("not kept any more")
)

// Gap says that records which were in the log cannot be read. Whoever asks again gets what follows them.
type Gap struct {
	Position uint64 // of the first of them
	Records  uint64 // how many
	Segment  string // where that is noticed
	Offset   int64
	Session  uint64 // of a record of which only the payload is bad, and its Sequence; 0: not known
	Sequence uint64
	Owner    uint64 // of that record
	Err      error  // ErrMissing, ErrRemoved, or a protocol.Reason
}

func (g *Gap) Error() string {
	what := fmt.Sprintf("record %d is", g.Position)
	if g.Records > 1 {
		what = fmt.Sprintf("records %d to %d are", g.Position, g.Position+g.Records-1)
	}
	if g.Segment == "" {
		return fmt.Sprintf("%s lost from the log: %v", what, g.Err)
	}
	return fmt.Sprintf("%s lost from the log: %v (noticed in %s at offset %d)", what, g.Err, g.Segment, g.Offset)
}

func (g *Gap) Unwrap() error { return g.Err }

// Cut says that records which a reader was given are void: a crash took them from the log before the disk had them for good, and
// the log went on in front of them. Whoever asks again gets what is there instead.
type Cut struct {
	From  uint64 // the first of them
	Given uint64 // the last that was given
}

func (c *Cut) Error() string {
	return fmt.Sprintf("records %d to %d, which were read, are void: the log lost them in a crash and went on from there", c.From, c.Given)
}
