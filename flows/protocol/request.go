package protocol

// Request requests a range of the served file or disk:
//
//	offset  bytes
//	     0      4  "uREQ"
//	     4      1  version
//	     5      1  kind: 3
//	     6      2  length of the header: 64
//	     8      4  id, chosen by the client: returned as the immediate, or in the response
//	    12      4  rkey of the destination memory
//	    16      8  offset in the file or disk
//	    24      4  length, not 0
//	    28      4  0
//	    32      8  address of the destination memory
//	    40     20  0
//	    60      4  CRC-32C of bytes 0 to 59
type Request struct {
	ID, RKey uint32
	Offset   uint64
	Length   uint32
	Address  uint64
}

const requestFree = 40

// PutRequest writes a message into the first HeaderLen bytes of dst. dst must be long enough.
func PutRequest(dst []byte, q *Request) {
	begin(dst, KindRequest)
	be.PutUint32(dst[8:], q.ID)
	be.PutUint32(dst[12:], q.RKey)
	be.PutUint64(dst[16:], q.Offset)
	be.PutUint32(dst[24:], q.Length)
	be.PutUint64(dst[32:], q.Address)
	seal(dst)
}

// ParseRequest parses a whole message. Both ranges end before 2^64; the caller must check that they
// are served and granted. The ID is also valid if the reason is OutOfRange, for the response.
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

// Response says why the server refused a request:
//
//	offset  bytes
//	     0      4  "uRSP"
//	     4      1  version
//	     5      1  kind: 4
//	     6      2  length of the header: 64
//	     8      4  id of the request
//	    12      4  status: a Reason, not 0
//	    16     44  0
//	    60      4  CRC-32C of bytes 0 to 59
type Response struct {
	ID     uint32
	Status Reason
}

const responseFree = 16

// PutResponse writes a message into the first HeaderLen bytes of dst. dst must be long enough.
func PutResponse(dst []byte, p *Response) {
	begin(dst, KindResponse)
	be.PutUint32(dst[8:], p.ID)
	be.PutUint32(dst[12:], uint32(p.Status))
	seal(dst)
}

// ParseResponse parses a whole message.
func ParseResponse(message []byte) (Response, Reason) {
	if r := alone(message, KindResponse, responseFree); r != None {
		return Response{}, r
	}
	s, r := status(be.Uint32(message[12:]))
	if r == None && s == None {
		r = BadReserved
	}
	if r != None {
		return Response{}, r
	}
	return Response{ID: be.Uint32(message[8:]), Status: s}, None
}
