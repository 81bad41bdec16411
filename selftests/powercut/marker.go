package powercut

import "hash/crc32"

// Marker records the progress of one of the guest's flows. The first marker of a flow says that the
// flow is about to begin.
type Marker struct {
	Flow     uint32 // the flow's number
	Client   uint32 // the client of a log that got an acknowledgement; 0: the flow's status reported the progress
	Number   uint64 // of the marker, from 0
	Packets  uint64 // durable packets, counted from the flow's first, or durable messages, from the client's first
	Position uint64 // in the log: of the client's last durable message, or of a later one of its messages
}

// markerLen is the length of a marker in bytes: one sector.
const markerLen = sector

const markerMagic = "UFDCUT01"

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Put writes the marker to dst, which has markerLen bytes.
func (m Marker) Put(dst []byte) {
	clear(dst)
	copy(dst, markerMagic)
	le.PutUint32(dst[8:], m.Flow)
	le.PutUint32(dst[12:], m.Client)
	le.PutUint64(dst[16:], m.Number)
	le.PutUint64(dst[24:], m.Packets)
	le.PutUint64(dst[32:], m.Position)
	le.PutUint32(dst[markerLen-4:], crc32.Checksum(dst[:markerLen-4], castagnoli))
}

// Place is the marker's offset on the disk, in bytes.
func (m Marker) Place() int64 {
	p := parts[3]
	return p.Offset + int64(m.Number%uint64(p.Length/markerLen))*markerLen
}

// parseMarker reads a marker. ok is false if b is not a marker.
func parseMarker(b []byte) (m Marker, ok bool) {
	if len(b) != markerLen || string(b[:8]) != markerMagic ||
		crc32.Checksum(b[:markerLen-4], castagnoli) != le.Uint32(b[markerLen-4:]) {
		return m, false
	}
	return Marker{le.Uint32(b[8:]), le.Uint32(b[12:]), le.Uint64(b[16:]), le.Uint64(b[24:]), le.Uint64(b[32:])}, true
}

// Claim is a marker, and the number of entries before it in the record.
type Claim struct {
	Marker
	Entry int
}

// Claims returns the markers of a record, in the record's order.
func (l *Log) Claims() (all []Claim) {
	for i, e := range l.Entries {
		if m, ok := parseMarker(e.Data); ok && e.Offset == m.Place() {
			all = append(all, Claim{m, i})
		}
	}
	return all
}
