package protocol

// Control is a record that a group appends for itself, as the payload of a record with session 0.
// Readers of the log skip it. Its payload:
//
//	offset  bytes
//	     0      4  what it says: 1, an epoch begins
//	     4      4  leader: the number of the member
//	     8      8  epoch
//	    16      4  how many members follow: 1 to MaxMembers
//	    20      4  each: its number
type Control struct {
	Leader  uint32
	Epoch   uint64
	Members []uint32
}

// MaxMembers is the largest number of members of a group, with those that join or leave.
const MaxMembers = 16

// MaxControlLen is the length of the longest control record, with its header.
const MaxControlLen = HeaderLen + controlMembers + 4*MaxMembers

const (
	controlBegins  = 1
	controlMembers = 20
)

// PutControl writes a control record into dst, which must have MaxControlLen bytes, and returns its
// length. There must be 1 to MaxMembers members.
func PutControl(dst []byte, c *Control, position, stamp uint64) int {
	payload := dst[HeaderLen:]
	be.PutUint32(payload, controlBegins)
	be.PutUint32(payload[4:], c.Leader)
	be.PutUint64(payload[8:], c.Epoch)
	be.PutUint32(payload[16:], uint32(len(c.Members)))
	for i, m := range c.Members {
		be.PutUint32(payload[controlMembers+4*i:], m)
	}
	payload = payload[:controlMembers+4*len(c.Members)]
	PutData(dst, &Data{Stamp: stamp, Length: uint32(len(payload)), Checksum: Checksum(payload)})
	SetRecord(dst, position, 0, uint32(c.Epoch))
	return HeaderLen + len(payload)
}

// ParseControl parses the payload of a control record.
func ParseControl(payload []byte) (Control, Reason) {
	if len(payload) < controlMembers {
		return Control{}, BadLength
	}
	c := Control{Leader: be.Uint32(payload[4:]), Epoch: be.Uint64(payload[8:])}
	n := be.Uint32(payload[16:])
	switch {
	case be.Uint32(payload) != controlBegins:
		return c, BadKind
	case n == 0 || n > MaxMembers:
		return c, BadReserved
	case len(payload) != controlMembers+4*int(n):
		return c, BadLength
	}
	for i := range int(n) {
		c.Members = append(c.Members, be.Uint32(payload[controlMembers+4*i:]))
	}
	return c, None
}
