package flows

import "github.com/unifiedd/unifiedd/flows/status"

// mark is a place in a flow's output: behind a batch.
type mark struct {
	number  uint64   // of the batch, 1 for the flow's first
	packets uint64   // packets of the flow up to here
	bytes   uint64   // their bytes
	newest  uint64   // time of the latest of them, in nanoseconds since the epoch
	segment *segment // the file it lies in
	end     uint64   // offset in it behind the batch
}

func (m mark) position() status.Position {
	at := status.Position{Packets: m.packets, Bytes: m.bytes, Offset: m.end}
	if m.segment != nil {
		at.Offset += m.segment.base
		at.File = m.segment.name()
	}
	return at
}
