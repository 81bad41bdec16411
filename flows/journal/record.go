package journal

import (
	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/internal/pcapng"
)

// Record is one message of the log.
type Record struct {
	protocol.Data
	Payload []byte // dies with the next call
	Time    uint64 // when it was taken, by the clock of the system that did: nanoseconds since 1970
	Segment string // the file, or which segment of a ring
	Offset  int64  // of its block in the segment
}

// packet is a record that was not looked at yet.
type packet struct {
	data   []byte
	time   uint64
	offset int64
	number uint64 // as the segment counts its packets
}

// packets appends those of a batch. They live as long as its bytes.
func packets(all []packet, b pcapng.Batch, data []byte) ([]packet, error) {
	number := b.FirstPacket
	err := pcapng.EachPacket(data, func(p pcapng.Packet) error {
		all = append(all, packet{p.Data, p.Time, int64(b.Offset) + p.Offset, number})
		number++
		return nil
	})
	return all, err
}

// read looks whether a record is intact. Of one with a bad payload it says what is in the header.
func (p *packet) read() (Record, protocol.Reason) {
	d, r := protocol.ParseRecord(p.data)
	if r != protocol.None {
		return Record{}, r
	}
	payload := p.data[protocol.HeaderLen:]
	switch {
	case d.Position == 0, d.Position == never:
		return Record{}, protocol.BadReserved
	case protocol.Checksum(payload) != d.Checksum:
		return Record{Data: d}, protocol.BadPayload
	}
	return Record{Data: d, Payload: payload, Time: p.time, Offset: p.offset}, protocol.None
}
