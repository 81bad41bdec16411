package protocol

// Response says why a request was not answered with what it asked for:
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

// PutResponse writes a message into the first HeaderLen bytes of dst, which must be there.
func PutResponse(dst []byte, p *Response) {
	begin(dst, KindResponse)
	be.PutUint32(dst[8:], p.ID)
	be.PutUint32(dst[12:], uint32(p.Status))
	seal(dst)
}

// ParseResponse reads a whole message.
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
