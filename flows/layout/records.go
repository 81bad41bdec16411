package layout

import (
	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/umem"
)

// Records are the headers of messages of which only the payloads are in frames, because an attached program can
// write those frames. The layout puts header and payload together, and computes the checksum of the copy: the
// program may change the payload at any time. Peers of a trusted program get the payload from where it lies.
type Records struct {
	heads []protocol.Data
	mask  uint64
}

// NewRecords returns room for n headers, a power of two.
func NewRecords(n int) *Records {
	return &Records{heads: make([]protocol.Data, n), mask: uint64(n) - 1}
}

// Set says what header a message gets. The layout finds it by Side.Token of the frame, which Set changes. The
// caller sets at most n headers of messages that the layout has not taken.
func (r *Records) Set(side *umem.Side, number uint64, d protocol.Data) {
	side.Token = number & r.mask
	r.heads[side.Token] = d
}

// Of returns the header of a message whose Side is side, without a checksum.
func (r *Records) Of(side *umem.Side) protocol.Data { return r.heads[side.Token&r.mask] }

// put writes the record of a payload, which is behind the first HeaderLen bytes of dst.
func (r *Records) put(dst []byte, side *umem.Side) {
	d := &r.heads[side.Token&r.mask]
	payload := dst[protocol.HeaderLen:]
	d.Length, d.Checksum = uint32(len(payload)), protocol.Checksum(payload)
	protocol.PutData(dst, d)
}
