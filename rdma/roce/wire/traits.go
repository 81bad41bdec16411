package wire

import (
	"fmt"

	"github.com/unifiedd/unifiedd/rdma"
)

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
