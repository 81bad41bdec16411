package fabrics

import "fmt"

// PrivateLen is the length in bytes of the private data that each side of an rdma_cm connection sends.
const PrivateLen = 32

// PrivateRequest is what a host sends when it connects a queue pair: struct nvme_rdma_cm_req.
type PrivateRequest struct {
	Queue      uint16
	HostRoom   uint16 // responses that may be in flight to it (HRQSIZE)
	HostSends  uint32 // the largest number of commands that it has in flight (HSQSIZE, which is one less)
	Controller uint16
}

// PrivateRequestOf decodes private data. It ignores further bytes.
func PrivateRequestOf(b []byte) (PrivateRequest, RejectReason) {
	switch {
	case len(b) < PrivateLen:
		return PrivateRequest{}, RejectLength
	case le.Uint16(b) != 0:
		return PrivateRequest{}, RejectFormat
	}
	r := PrivateRequest{Queue: le.Uint16(b[2:]), HostRoom: le.Uint16(b[4:]), HostSends: uint32(le.Uint16(b[6:])) + 1, Controller: le.Uint16(b[8:])}
	if r.HostRoom == 0 {
		return r, RejectHostRoom
	}
	return r, 0
}

// Bytes encodes the request for PrivateRequestOf.
func (r PrivateRequest) Bytes() []byte {
	b := make([]byte, PrivateLen)
	le.PutUint16(b[2:], r.Queue)
	le.PutUint16(b[4:], r.HostRoom)
	le.PutUint16(b[6:], uint16(r.HostSends-1))
	le.PutUint16(b[8:], r.Controller)
	return b
}

// PrivateReply is the private data of the side that accepts. room is the number of commands that it
// can receive: struct nvme_rdma_cm_rep.
func PrivateReply(room uint16) []byte {
	b := make([]byte, PrivateLen)
	le.PutUint16(b[2:], room)
	return b
}

// RejectReason is why a queue pair was rejected: enum nvme_rdma_cm_status. It is an error.
type RejectReason uint16

// Reasons.
const (
	RejectLength      RejectReason = 1 // of the private data
	RejectFormat      RejectReason = 2
	RejectQueue       RejectReason = 3
	RejectHostSends   RejectReason = 4
	RejectHostRoom    RejectReason = 5
	RejectNoResources RejectReason = 6
	RejectReads       RejectReason = 7 // IRD
	RejectNoReads     RejectReason = 8 // ORD
	RejectController  RejectReason = 9
)

// RejectReasons is one more than the last reason.
const RejectReasons = 10

var rejectNames = [RejectReasons]string{"", "invalid length of private data", "invalid format of private data", "invalid queue number", "invalid HSQSIZE", "invalid HRQSIZE",
	"no resources", "invalid IRD", "the host allows no reads of its memory (ORD)", "invalid controller"}

// Error returns the meaning of the reason.
func (r RejectReason) Error() string {
	if int(r) < len(rejectNames) && r > 0 {
		return rejectNames[r]
	}
	return fmt.Sprintf("reject reason %d", uint16(r))
}

// Bytes is the private data of a rejection: struct nvme_rdma_cm_rej.
func (r RejectReason) Bytes() []byte {
	b := make([]byte, 4)
	le.PutUint16(b[2:], uint16(r))
	return b
}

var rejectWords = [RejectReasons]string{"", "length", "format", "queue", "hsqsize", "hrqsize", "no_resources", "ird", "ord", "controller"}

// Word is the reason in one word, for metrics. It is empty for an unknown reason.
func (r RejectReason) Word() string {
	if int(r) < len(rejectWords) {
		return rejectWords[r]
	}
	return ""
}
