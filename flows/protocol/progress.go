package protocol

// Progress is what a receiver says of a session:
//
//	offset  bytes
//	     0      4  "uACK"
//	     4      1  version
//	     5      1  kind: 2
//	     6      2  length of the header: 64
//	     8      8  sequence up to which, with it, messages are acknowledged; 0 none
//	    16      8  position of that message in the log, 0 where there is none
//	    24      8  limit: the highest sequence that the sender may send
//	    32      8  session
//	    40      4  status: a Reason; when it is not 0 the receiver ends the session's queue pair
//	    44     16  0
//	    60      4  CRC-32C of bytes 0 to 59
type Progress struct {
	Sequence, Position, Limit, Session uint64
	Status                             Reason
}

const progressFree = 44

// PutProgress writes a message into the first HeaderLen bytes of dst, which must be there.
func PutProgress(dst []byte, p *Progress) {
	begin(dst, KindProgress)
	putProgress(dst, p)
	seal(dst)
}

// putProgress writes the fields that progress and grants have.
func putProgress(dst []byte, p *Progress) {
	be.PutUint64(dst[8:], p.Sequence)
	be.PutUint64(dst[16:], p.Position)
	be.PutUint64(dst[24:], p.Limit)
	be.PutUint64(dst[32:], p.Session)
	be.PutUint32(dst[40:], uint32(p.Status))
}

// ParseProgress reads a whole message. That the numbers fit what was sent is its caller's to check.
func ParseProgress(message []byte) (Progress, Reason) {
	if r := alone(message, KindProgress, progressFree); r != None {
		return Progress{}, r
	}
	return parseProgress(message)
}

// parseProgress reads the fields that progress and grants have.
func parseProgress(message []byte) (Progress, Reason) {
	p := Progress{Sequence: be.Uint64(message[8:]), Position: be.Uint64(message[16:]), Limit: be.Uint64(message[24:]), Session: be.Uint64(message[32:])}
	var r Reason
	if p.Status, r = status(be.Uint32(message[40:])); r != None {
		return Progress{}, r
	}
	if p.Session == 0 {
		return Progress{}, BadSession
	}
	return p, None
}

// alone checks a message that is nothing but a header.
func alone(message []byte, k Kind, free int) Reason {
	if len(message) != HeaderLen {
		return BadLength
	}
	return check(message, k, free)
}

// status reads a Reason. Numbers of one byte that this program does not know are later ones, and stay.
func status(v uint32) (Reason, Reason) {
	if v > 0xff {
		return None, BadReserved
	}
	return Reason(v), None
}
