package protocol

// Request asks for a range of what is served:
//
//	offset  bytes
//	     0      4  "uREQ"
//	     4      1  version
//	     5      1  kind: 3
//	     6      2  length of the header: 64
//	     8      4  id, the client's choice: comes back as the immediate number, or in the response
//	    12      4  rkey of the memory that the bytes shall go to
//	    16      8  offset in what is served
//	    24      4  length, not 0
//	    28      4  0
//	    32      8  address that the bytes shall go to
//	    40     20  0
//	    60      4  CRC-32C of bytes 0 to 59
type Request struct {
	ID, RKey uint32
	Offset   uint64
	Length   uint32
	Address  uint64
}

const requestFree = 40

// PutRequest writes a message into the first HeaderLen bytes of dst, which must be there.
func PutRequest(dst []byte, q *Request) {
	begin(dst, KindRequest)
	be.PutUint32(dst[8:], q.ID)
	be.PutUint32(dst[12:], q.RKey)
	be.PutUint64(dst[16:], q.Offset)
	be.PutUint32(dst[24:], q.Length)
	be.PutUint64(dst[32:], q.Address)
	seal(dst)
}

// ParseRequest reads a whole message. Ranges end before 2^64, both what is asked for and where it
// shall go; that they are served and granted is its caller's to check. The id is also there where the
// reason is OutOfRange, for the response.
func ParseRequest(message []byte) (Request, Reason) {
	if r := alone(message, KindRequest, requestFree); r != None {
		return Request{}, r
	}
	if r := zeros(message[28:32]); r != None {
		return Request{}, r
	}
	q := Request{ID: be.Uint32(message[8:]), RKey: be.Uint32(message[12:]), Offset: be.Uint64(message[16:]), Length: be.Uint32(message[24:]), Address: be.Uint64(message[32:])}
	n := uint64(q.Length)
	if n == 0 || q.Offset+n < q.Offset || q.Address+n < q.Address {
		return q, OutOfRange
	}
	return q, None
}
