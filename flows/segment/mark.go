package segment

import "github.com/unifiedd/unifiedd/flows/status"

// mark is a place in a flow's output: behind a batch.
type Position struct {
	Number  uint64   // of the batch, 1 for the flow's first
	Packets uint64   // packets of the flow up to here
	Bytes   uint64   // their bytes
	Newest  uint64   // time of the latest of them, in nanoseconds since the epoch
	Segment *Segment // the file it lies in
	End     uint64   // offset in it behind the batch
}

func (m Position) Status() status.Position {
	at := status.Position{Packets: m.Packets, Bytes: m.Bytes, Offset: m.End}
	if m.Segment != nil {
		at.Offset += m.Segment.Base
		at.File = m.Segment.Path()
	}
	return at
}
