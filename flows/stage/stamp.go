package stage

import "fmt"

// Sequence writes a number at Offset bytes into the UDP payload: 8 bytes, big-endian. The number counts, from
// 1, the packets that it was written to.
type Sequence struct {
	Offset int
}

// Timestamp writes the time given to Apply at Offset bytes into the UDP payload: 8 bytes, big-endian.
type Timestamp struct {
	Offset int
}

const (
	stampLen  = 8
	maxOffset = 65507 - stampLen // of the longest UDP payload
)

// checkOffset refuses offsets that no UDP payload has.
func checkOffset(kind string, offset int) error {
	if offset < 0 || offset > maxOffset {
		return fmt.Errorf("%s: offset %d is not from 0 to %d", kind, offset, maxOffset)
	}
	return nil
}

// place returns the position in the packet of an offset into the payload, or the reason why there are not that many
// bytes.
func (v *view) place(p []byte, offset, length int) (int, Reason) {
	switch {
	case v.network != Changed:
		return 0, v.network
	case v.carried != Changed:
		return 0, v.carried
	case v.sealed:
		return 0, Authenticated
	case v.proto != protoUDP:
		return 0, NotUDP
	case v.transport == 0:
		return 0, LaterFragment
	}
	end := v.end
	if n := int(be.Uint16(p[v.transport+4:])); n != 0 || !v.v6 {
		if n < 8 {
			return 0, Malformed
		}
		end = min(end, v.transport+n)
	}
	switch at := v.transport + 8 + offset; {
	case at+length > end:
		return 0, ShortPayload
	case at+length > len(p):
		return 0, OtherFrame
	default:
		return at, Changed
	}
}

// stamp writes a number into the payload. It returns Changed, or the reason why it did not.
func stamp(p []byte, v *view, offset int, number uint64) Reason {
	at, why := v.place(p, offset, stampLen)
	if why != Changed {
		return why
	}
	var by [stampLen]byte
	be.PutUint64(by[:], number)
	d := replace(p[at:at+stampLen], by[:])
	if (at-v.transport)%2 != 0 {
		d = swapped(d)
	}
	v.adjust(p, d)
	return Changed
}
