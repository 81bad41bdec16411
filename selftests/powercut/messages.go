package powercut

import (
	"fmt"

	"github.com/unifiedd/unifiedd/selftests/harness"
)

// Message is a message of a client in a log. A client's messages are numbered from 1.
type Message struct {
	Client uint32
	Number uint64
}

// mostPayload is the longest message that a log accepts by default, in bytes.
const mostPayload = 2048

// Bytes returns the payload. No two payloads begin with the same bytes.
func (m Message) Bytes() []byte {
	b := make([]byte, 8+(m.Number*2654435761+uint64(m.Client))%(mostPayload-7))
	harness.Fill(b, uint64(m.Client), m.Number)
	return b
}

// checkLog reports whether the messages found after a cut are possible for a log with those claims.
// first is the position of the first message found. Each client's messages must be there once and
// in order. Messages that were called durable must be there, at their positions. If the log
// overwrites its oldest messages, the first ones may be missing.
func checkLog(found []Message, first uint64, claims []Claim, overwrites bool) error {
	if err := inOrder(found, first); err != nil {
		return err
	}
	if first > 1 && !overwrites {
		return fmt.Errorf("%w: the log begins at position %d", errLost, first)
	}
	for _, c := range claims {
		if err := c.keptIn(found, first); err != nil {
			return err
		}
	}
	return nil
}

// inOrder checks that each client's numbers go up by one. They begin at 1 if the log still has its
// first position.
func inOrder(found []Message, first uint64) error {
	last := map[uint32]uint64{}
	for i, m := range found {
		before, known := last[m.Client]
		if known && m.Number != before+1 || !known && first == 1 && m.Number != 1 {
			return fmt.Errorf("%w: position %d has message %d of client %d, behind its message %d", errOrder, first+uint64(i), m.Number, m.Client, before)
		}
		last[m.Client] = m.Number
	}
	return nil
}

// keptIn checks that a claim about a log is true.
func (c *Claim) keptIn(found []Message, first uint64) error {
	end, position := first+uint64(len(found)), c.Position
	if c.Client == 0 {
		position = c.Packets // in a new log, positions equal the number of messages
	}
	switch {
	case position >= end:
		return fmt.Errorf("%w: the log ends at position %d, and %d was called durable", errLost, end-1, position)
	case c.Client == 0 || position < first:
		return nil
	}
	// A receipt has the position of the last message that was acknowledged together with this one.
	// That message may be a later one.
	if at := found[position-first]; at.Client != c.Client || at.Number < c.Packets {
		return fmt.Errorf("%w: position %d has %+v, and client %d was told that its messages up to %d end there", errLost, position, at, c.Client, c.Packets)
	}
	return nil
}
