package powercut

import "hash/crc32"

// Marker says how far a flow of the guest's has come. The first of each says that the flow
// is about to begin.
type Marker struct {
	Flow     uint32 // its number
	Client   uint32 // of a log, which was told so; 0: the flow's own status says it
	Number   uint64 // of the marker, from 0
	Packets  uint64 // durable, from the flow's first on, or from the client's first message on
	Position uint64 // in the log, of the last of a client's, or of a later one of its messages
}

// markerLen is the length of a marker in bytes: a sector.
const markerLen = sector

const markerMagic = "UFDCUT01"

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Put makes dst, MarkerLen bytes, the marker.
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

// Place is where the marker is written on the disk, in bytes.
func (m Marker) Place() int64 {
	p := parts[3]
	return p.Offset + int64(m.Number%uint64(p.Length/markerLen))*markerLen
}

// parseMarker reads a marker; ok is false for anything else.
func parseMarker(b []byte) (m Marker, ok bool) {
	if len(b) != markerLen || string(b[:8]) != markerMagic ||
		crc32.Checksum(b[:markerLen-4], castagnoli) != le.Uint32(b[markerLen-4:]) {
		return m, false
	}
	return Marker{le.Uint32(b[8:]), le.Uint32(b[12:]), le.Uint64(b[16:]), le.Uint64(b[24:]), le.Uint64(b[32:])}, true
}

// Claim is a marker and how many entries of the record were in front of it.
type Claim struct {
	Marker
	Entry int
}

// Claims finds the markers of a record, in its order.
func (l *Log) Claims() (all []Claim) {
	for i, e := range l.Entries {
		if m, ok := parseMarker(e.Data); ok && e.Offset == m.Place() {
			all = append(all, Claim{m, i})
		}
	}
	return all
}
