package protocol

import (
	"encoding/binary"
	"hash/crc32"
)

// Version is that of the messages and of the hello. Both sides must have the same.
const Version = 1

// HeaderLen is the length of every message but for the payload of a data message and the credits of a grant, in bytes.
const HeaderLen = 64

// Kind is what a message is.
type Kind uint8

const (
	KindData     Kind = 1
	KindProgress Kind = 2
	KindRequest  Kind = 3
	KindResponse Kind = 4
	KindGrant    Kind = 5
)

// Where the fields are that all messages have.
const (
	versionAt = 4  // 1 byte
	kindAt    = 5  // 1 byte
	lengthAt  = 6  // 2 bytes: HeaderLen
	sumAt     = 60 // 4 bytes: CRC-32C of those in front of it
)

var magics = [...]uint32{KindData: magic("uMSG"), KindProgress: magic("uACK"), KindRequest: magic("uREQ"), KindResponse: magic("uRSP"), KindGrant: magic("uGRT")}

func magic(s string) uint32 { return binary.BigEndian.Uint32([]byte(s)) }

var (
	be         = binary.BigEndian
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// begin clears a header and writes what all have in front.
func begin(dst []byte, k Kind) {
	clear(dst[:HeaderLen])
	be.PutUint32(dst, magics[k])
	dst[versionAt], dst[kindAt] = Version, byte(k)
	be.PutUint16(dst[lengthAt:], HeaderLen)
}

// seal writes a header's checksum.
func seal(header []byte) {
	be.PutUint32(header[sumAt:], crc32.Checksum(header[:sumAt], castagnoli))
}

// check reports what is wrong with a message's header whatever its kind is; free is where bytes
// without a meaning begin: they are 0 up to the checksum.
func check(message []byte, k Kind, free int) Reason {
	switch {
	case len(message) < HeaderLen:
		return BadLength
	case be.Uint32(message) != magics[k]:
		return BadMagic
	case message[versionAt] != Version:
		return BadVersion
	case Kind(message[kindAt]) != k:
		return BadKind
	case be.Uint16(message[lengthAt:]) != HeaderLen:
		return BadLength
	case be.Uint32(message[sumAt:]) != crc32.Checksum(message[:sumAt], castagnoli):
		return BadHeader
	}
	return zeros(message[free:sumAt])
}

// zeros refuses bytes that are not 0.
func zeros(b []byte) Reason {
	for _, v := range b {
		if v != 0 {
			return BadReserved
		}
	}
	return None
}

// KindOf is the kind that the first bytes of a message say, which may then still not be one. It is for
// who may receive several.
func KindOf(message []byte) (Kind, Reason) {
	if len(message) < HeaderLen {
		return 0, BadLength
	}
	m := be.Uint32(message)
	for k := KindData; k <= KindGrant; k++ {
		if magics[k] == m {
			return k, None
		}
	}
	return 0, BadMagic
}
