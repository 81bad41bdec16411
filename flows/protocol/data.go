package protocol

import (
	"crypto/sha256"
	"hash/crc32"
)

// Data is the header of a message with a payload:
//
//	offset  bytes
//	     0      4  "uMSG"
//	     4      1  version
//	     5      1  kind: 1
//	     6      2  length of the header: 64
//	     8      8  sequence: 1 for the session's first message, one more for each
//	    16      8  session
//	    24      8  position: 0 from the sender; in a log, 1 for its first message; with an origin, the sequence there
//	    32      8  stamp: the sender's clock, nanoseconds since 1970, 0 unknown
//	    40      4  length of the payload, which follows the header
//	    44      4  CRC-32C of the payload
//	    48      8  origin: the session from which a relay has the message; 0 none. A log has it as session, with that sequence,
//	              and here the owner of the session in which the message came: see [OwnerOf]
//	    56      4  0; in a group's log the epoch of the leader that appended the record
//	    60      4  CRC-32C of bytes 0 to 59
//
// In a group's log, a record with session 0 is a [Control] record.
type Data struct {
	Sequence, Session, Position, Stamp uint64
	Origin                             Origin
	Owner                              uint64 // of a record in a log: see OwnerOf
	Epoch                              uint32 // of a record in a group's log
	Length, Checksum                   uint32
}

// Origin is the session of a relay's client, and the sequence of the message in that session. The
// zero value means no origin. Relays send origins only to a receiver with CapabilityOrigin.
type Origin struct{ Session, Sequence uint64 }

const (
	dataSequence = 8
	dataSession  = 16
	dataPosition = 24
	dataOrigin   = 48
	dataEpoch    = 56
)

// PutData writes the header of a message into the first HeaderLen bytes of dst. dst must be long
// enough.
func PutData(dst []byte, d *Data) {
	begin(dst, KindData)
	be.PutUint64(dst[8:], d.Sequence)
	be.PutUint64(dst[16:], d.Session)
	be.PutUint64(dst[dataPosition:], d.Position)
	be.PutUint64(dst[32:], d.Stamp)
	be.PutUint32(dst[40:], d.Length)
	be.PutUint32(dst[44:], d.Checksum)
	if d.Origin.Session != 0 {
		be.PutUint64(dst[dataPosition:], d.Origin.Sequence)
		be.PutUint64(dst[dataOrigin:], d.Origin.Session)
	}
	seal(dst)
}

// ParseData parses the header of a whole message, whose length must match the header. It does not
// check the payload: compare its Checksum with the field.
func ParseData(message []byte) (Data, Reason) {
	d, r := ParseDataHeader(message)
	if r == None && uint64(len(message)) != HeaderLen+uint64(d.Length) {
		return d, BadLength
	}
	return d, r
}

// ParseDataHeader parses the header of a message whose payload is elsewhere, or has not arrived
// yet.
func ParseDataHeader(header []byte) (Data, Reason) {
	d, r := parseData(header, dataEpoch)
	switch {
	case r != None:
		return d, r
	case d.Sequence == 0 || d.Origin.Session != 0 && d.Origin.Sequence == 0:
		return d, BadSequence
	case d.Session == 0:
		return d, BadSession
	}
	return d, None
}

// parseData parses a header whose bytes from offset free on must be 0.
func parseData(header []byte, free int) (Data, Reason) {
	if r := check(header, KindData, free); r != None {
		return Data{}, r
	}
	d := Data{
		Sequence: be.Uint64(header[8:]), Session: be.Uint64(header[16:]), Position: be.Uint64(header[dataPosition:]), Stamp: be.Uint64(header[32:]),
		Length: be.Uint32(header[40:]), Checksum: be.Uint32(header[44:]),
	}
	if session := be.Uint64(header[dataOrigin:]); session != 0 {
		d.Origin, d.Position = Origin{session, d.Position}, 0
	}
	return d, None
}

// SetRecord turns the header of a message into the header of a record in a log. It sets the
// position, the owner and the epoch, which is 0 in a log that belongs to no group, and updates the
// checksum. A message of a relay gets the session and the sequence of its origin.
func SetRecord(header []byte, position, owner uint64, epoch uint32) {
	if o := OriginOf(header); o.Session != 0 {
		be.PutUint64(header[dataSequence:], o.Sequence)
		be.PutUint64(header[dataSession:], o.Session)
	}
	be.PutUint64(header[dataPosition:], position)
	be.PutUint64(header[dataOrigin:], owner)
	be.PutUint32(header[dataEpoch:], epoch)
	seal(header)
}

// ParseRecord is ParseData for a record in a log, which has an owner in the place of an origin, and in
// a group's log an epoch.
func ParseRecord(message []byte) (Data, Reason) {
	d, r := parseData(message, sumAt)
	if r != None {
		return d, r
	}
	d.Epoch = be.Uint32(message[dataEpoch:])
	if d.Origin.Session != 0 {
		d.Owner, d.Position, d.Origin = d.Origin.Session, d.Origin.Sequence, Origin{}
	}
	control := d.Epoch != 0 && d.Session == 0
	switch {
	case uint64(len(message)) != HeaderLen+uint64(d.Length):
		return d, BadLength
	case control != (d.Sequence == 0) || control && d.Owner != 0:
		return d, BadSequence
	case d.Session == 0 && !control:
		return d, BadSession
	}
	return d, None
}

// OwnerOf returns the number that identifies the name of a certificate in a log: the first 8 bytes
// of its SHA-256, big-endian, or 1 if these are 0. Without a name, as without TLS, it returns 0.
func OwnerOf(name string) uint64 {
	if name == "" {
		return 0
	}
	sum := sha256.Sum256([]byte(name))
	return max(1, be.Uint64(sum[:]))
}

// OriginOf returns the origin of a message whose header was parsed.
func OriginOf(header []byte) Origin {
	if session := be.Uint64(header[dataOrigin:]); session != 0 {
		return Origin{session, be.Uint64(header[dataPosition:])}
	}
	return Origin{}
}

// FirstOrigin returns the origin of a message that a relay passes on: its own origin if it has one,
// otherwise the session in which the relay received it.
func FirstOrigin(header []byte) Origin {
	if o := OriginOf(header); o.Session != 0 {
		return o
	}
	return Origin{be.Uint64(header[dataSession:]), be.Uint64(header[dataSequence:])}
}

// Checksum returns the checksum of a payload.
func Checksum(payload []byte) uint32 { return crc32.Checksum(payload, castagnoli) }

// ChecksumMore continues a checksum: sum is the checksum of the bytes before payload.
func ChecksumMore(sum uint32, payload []byte) uint32 { return crc32.Update(sum, castagnoli, payload) }

// SequenceOf returns the sequence of a message whose header was parsed.
func SequenceOf(header []byte) uint64 { return be.Uint64(header[dataSequence:]) }
