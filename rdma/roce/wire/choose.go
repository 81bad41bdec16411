package wire

import "github.com/unifiedd/unifiedd/rdma"

// RequestOpcode returns the opcode of a request's packet: the first of its message, the last, both
// or neither. ok is false if the transport has no such packet. READs and atomics are one packet,
// whatever the values of first and last.
func RequestOpcode(t rdma.Transport, op rdma.Op, first, last bool) (o Opcode, ok bool) {
	if !t.Allows(op) {
		return 0, false
	}
	switch op {
	case rdma.Read:
		return RCReadRequest, true
	case rdma.CompareSwap:
		return RCCompareSwap, true
	case rdma.FetchAdd:
		return RCFetchAdd, true
	}
	o = position(first, last).of(op)
	switch t {
	case rdma.UC:
		return o + UCSendFirst, op != rdma.LocalInvalidate
	case rdma.UD:
		return o - RCSendOnly + UDSendOnly, first && last
	}
	return o, op != rdma.LocalInvalidate
}

// ReadResponseOpcode returns the opcode of a packet that answers a READ.
func ReadResponseOpcode(first, last bool) Opcode {
	return [...]Opcode{RCReadResponseMiddle, RCReadResponseLast, RCReadResponseFirst, RCReadResponseOnly}[position(first, last)]
}

// place is the place of a packet in its message: 0 middle, 1 last, 2 first, 3 only.
type place uint8

func position(first, last bool) (p place) {
	if first {
		p = 2
	}
	if last {
		p++
	}
	return p
}

// of returns the RC opcode of a SEND or WRITE at that place.
func (p place) of(op rdma.Op) Opcode {
	switch op {
	case rdma.SendImmediate:
		return [...]Opcode{RCSendMiddle, RCSendLastImmediate, RCSendFirst, RCSendOnlyImmediate}[p]
	case rdma.SendInvalidate:
		return [...]Opcode{RCSendMiddle, RCSendLastInvalidate, RCSendFirst, RCSendOnlyInvalidate}[p]
	case rdma.Write:
		return [...]Opcode{RCWriteMiddle, RCWriteLast, RCWriteFirst, RCWriteOnly}[p]
	case rdma.WriteImmediate:
		return [...]Opcode{RCWriteMiddle, RCWriteLastImmediate, RCWriteFirst, RCWriteOnlyImmediate}[p]
	}
	return [...]Opcode{RCSendMiddle, RCSendLast, RCSendFirst, RCSendOnly}[p]
}
