package wire

import (
	"fmt"

	"github.com/unifiedd/unifiedd/rdma"
)

// Opcode is the first byte of the base transport header. The upper three bits are the transport (0
// RC, 1 UC, 3 UD, 4 congestion notification), the lower five the operation.
type Opcode uint8

// Opcodes, with the numbers of include/rdma/ib_pack.h. FLUSH and atomic WRITE (0x1c, 0x1d) are not
// supported.
const (
	RCSendFirst          Opcode = 0x00
	RCSendMiddle         Opcode = 0x01
	RCSendLast           Opcode = 0x02
	RCSendLastImmediate  Opcode = 0x03
	RCSendOnly           Opcode = 0x04
	RCSendOnlyImmediate  Opcode = 0x05
	RCWriteFirst         Opcode = 0x06
	RCWriteMiddle        Opcode = 0x07
	RCWriteLast          Opcode = 0x08
	RCWriteLastImmediate Opcode = 0x09
	RCWriteOnly          Opcode = 0x0a
	RCWriteOnlyImmediate Opcode = 0x0b
	RCReadRequest        Opcode = 0x0c
	RCReadResponseFirst  Opcode = 0x0d
	RCReadResponseMiddle Opcode = 0x0e
	RCReadResponseLast   Opcode = 0x0f
	RCReadResponseOnly   Opcode = 0x10
	RCAcknowledge        Opcode = 0x11
	RCAtomicAcknowledge  Opcode = 0x12
	RCCompareSwap        Opcode = 0x13
	RCFetchAdd           Opcode = 0x14
	RCSendLastInvalidate Opcode = 0x16
	RCSendOnlyInvalidate Opcode = 0x17

	UCSendFirst          Opcode = 0x20
	UCSendMiddle         Opcode = 0x21
	UCSendLast           Opcode = 0x22
	UCSendLastImmediate  Opcode = 0x23
	UCSendOnly           Opcode = 0x24
	UCSendOnlyImmediate  Opcode = 0x25
	UCWriteFirst         Opcode = 0x26
	UCWriteMiddle        Opcode = 0x27
	UCWriteLast          Opcode = 0x28
	UCWriteLastImmediate Opcode = 0x29
	UCWriteOnly          Opcode = 0x2a
	UCWriteOnlyImmediate Opcode = 0x2b

	UDSendOnly          Opcode = 0x64
	UDSendOnlyImmediate Opcode = 0x65

	// CNP tells a sender that its packets met congestion: BECN set, PSN 0, and a
	// payload of CNPBytes zeros. Annex A17.9.
	CNP Opcode = 0x81
)

// Kind is the operation that a packet belongs to. Packets of one message have the same kind.
type Kind uint8

const (
	NoKind            Kind = iota // of an opcode that is not supported
	Send                          // a SEND
	Write                         // an RDMA WRITE
	ReadRequest                   // requests an RDMA READ
	ReadResponse                  // has the data of an RDMA READ
	Acknowledge                   // an ACK or NAK
	AtomicAcknowledge             // the answer to an atomic
	CompareSwap
	FetchAdd
	Congestion // a CNP
)

// Known reports whether the opcode is one of those above.
func (o Opcode) Known() bool { return table[o].bytes != 0 }

// Kind returns the operation that the packet belongs to.
func (o Opcode) Kind() Kind { return table[o].kind }

// HeaderBytes returns the length of the base transport header with the extension headers, or 0 for
// an unknown opcode.
func (o Opcode) HeaderBytes() int { return int(table[o].bytes) }

// Starts reports whether the packet is the first or only one of its message.
func (o Opcode) Starts() bool { return table[o].has(starts) }

// Ends reports whether the packet is the last or only one of its message.
func (o Opcode) Ends() bool { return table[o].has(ends) }

// IsLast reports whether packets of the message came before and none follows.
func (o Opcode) IsLast() bool { return table[o].parts&(starts|ends) == ends }

// IsResponse reports whether the packet goes from responder to requester: acknowledgements and the data
// of READs and atomics.
func (o Opcode) IsResponse() bool { return table[o].has(response) }

// CarriesPayload reports whether the packet may have a payload.
func (o Opcode) CarriesPayload() bool { return table[o].has(payload) }

// HasRETH reports whether an RDMA extended transport header follows: VA, RKey, DMALength.
func (o Opcode) HasRETH() bool { return table[o].has(reth) }

// HasAETH reports whether an ACK extended transport header follows: Syndrome, MSN.
func (o Opcode) HasAETH() bool { return table[o].has(aeth) }

// HasImmediate reports whether four bytes of immediate data follow.
func (o Opcode) HasImmediate() bool { return table[o].has(immediate) }

// HasInvalidate reports whether the rkey that the peer shall invalidate follows.
func (o Opcode) HasInvalidate() bool { return table[o].has(invalidate) }

// parts are the properties of an opcode, a bit each.
type parts uint16

const (
	starts parts = 1 << iota
	ends
	response
	payload
	deth
	reth
	aeth
	atomicETH
	atomicAck
	immediate
	invalidate

	first  = starts | payload
	middle = payload
	last   = ends | payload
	only   = starts | ends | payload
	bare   = starts | ends // without payload
)

// extensions has the extension headers in their order on the wire, with their lengths in bytes.
var extensions = [...]struct {
	part  parts
	bytes uint8
}{{deth, 8}, {reth, 16}, {aeth, 4}, {atomicETH, 28}, {atomicAck, 8}, {immediate, 4}, {invalidate, 4}}

// traits are the properties of an opcode. They are zero for an unknown one.
type traits struct {
	parts     parts
	kind      Kind
	bytes     uint8 // of all headers
	transport uint8 // a rdma.Transport
}

func (t *traits) has(p parts) bool { return t.parts&p == p }

// operation is a row of the tables below: the meaning of the lower five bits of an opcode.
type operation struct {
	name  string
	kind  Kind
	parts parts
}

// connected has the operations of RC. UC has those before the READs.
var connected = [32]operation{
	RCSendFirst:          {"SEND_FIRST", Send, first},
	RCSendMiddle:         {"SEND_MIDDLE", Send, middle},
	RCSendLast:           {"SEND_LAST", Send, last},
	RCSendLastImmediate:  {"SEND_LAST_IMMEDIATE", Send, last | immediate},
	RCSendOnly:           {"SEND_ONLY", Send, only},
	RCSendOnlyImmediate:  {"SEND_ONLY_IMMEDIATE", Send, only | immediate},
	RCWriteFirst:         {"WRITE_FIRST", Write, first | reth},
	RCWriteMiddle:        {"WRITE_MIDDLE", Write, middle},
	RCWriteLast:          {"WRITE_LAST", Write, last},
	RCWriteLastImmediate: {"WRITE_LAST_IMMEDIATE", Write, last | immediate},
	RCWriteOnly:          {"WRITE_ONLY", Write, only | reth},
	RCWriteOnlyImmediate: {"WRITE_ONLY_IMMEDIATE", Write, only | reth | immediate},
	RCReadRequest:        {"READ_REQUEST", ReadRequest, bare | reth},
	RCReadResponseFirst:  {"READ_RESPONSE_FIRST", ReadResponse, first | response | aeth},
	RCReadResponseMiddle: {"READ_RESPONSE_MIDDLE", ReadResponse, middle | response},
	RCReadResponseLast:   {"READ_RESPONSE_LAST", ReadResponse, last | response | aeth},
	RCReadResponseOnly:   {"READ_RESPONSE_ONLY", ReadResponse, only | response | aeth},
	RCAcknowledge:        {"ACKNOWLEDGE", Acknowledge, bare | response | aeth},
	RCAtomicAcknowledge:  {"ATOMIC_ACKNOWLEDGE", AtomicAcknowledge, bare | response | aeth | atomicAck},
	RCCompareSwap:        {"COMPARE_SWAP", CompareSwap, bare | atomicETH},
	RCFetchAdd:           {"FETCH_ADD", FetchAdd, bare | atomicETH},
	RCSendLastInvalidate: {"SEND_LAST_INVALIDATE", Send, last | invalidate},
	RCSendOnlyInvalidate: {"SEND_ONLY_INVALIDATE", Send, only | invalidate},
}

// table and names have every opcode.
var table, names = tabulate()

func tabulate() (table [256]traits, names [256]string) {
	add := func(o Opcode, t rdma.Transport, prefix string, op operation) {
		table[o] = traits{op.parts, op.kind, BTHBytes + op.parts.bytes(), uint8(t)}
		names[o] = prefix + op.name
	}
	for i, op := range connected {
		if op.kind != NoKind {
			add(Opcode(i), rdma.RC, "RC_", op)
		}
		if op.kind != NoKind && Opcode(i) < RCReadRequest {
			add(UCSendFirst+Opcode(i), rdma.UC, "UC_", op)
		}
	}
	add(UDSendOnly, rdma.UD, "UD_", operation{"SEND_ONLY", Send, only | deth})
	add(UDSendOnlyImmediate, rdma.UD, "UD_", operation{"SEND_ONLY_IMMEDIATE", Send, only | deth | immediate})
	add(CNP, 0, "", operation{"CNP", Congestion, only})
	return table, names
}

// bytes is the length of the extension headers.
func (p parts) bytes() (n uint8) {
	for _, e := range extensions {
		if p&e.part != 0 {
			n += e.bytes
		}
	}
	return n
}

// Transport returns the transport of the opcode, 0 for CNP and for unknown ones.
func (o Opcode) Transport() rdma.Transport { return rdma.Transport(table[o].transport) }

func (o Opcode) String() string {
	if o.Known() {
		return names[o]
	}
	return fmt.Sprintf("opcode 0x%02x", uint8(o))
}

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
