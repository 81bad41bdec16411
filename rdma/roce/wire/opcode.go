package wire

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

// IsFirst reports whether more packets of the message follow and none came before.
func (o Opcode) IsFirst() bool { return table[o].parts&(starts|ends) == starts }

// IsMiddle reports whether packets of the message came before and more follow.
func (o Opcode) IsMiddle() bool { return o.Known() && table[o].parts&(starts|ends) == 0 }

// IsLast reports whether packets of the message came before and none follows.
func (o Opcode) IsLast() bool { return table[o].parts&(starts|ends) == ends }

// IsOnly reports whether the packet is its whole message.
func (o Opcode) IsOnly() bool { return table[o].has(starts | ends) }

// IsResponse reports whether the packet goes from responder to requester: acknowledgements and the data
// of READs and atomics.
func (o Opcode) IsResponse() bool { return table[o].has(response) }

// CarriesPayload reports whether the packet may have a payload.
func (o Opcode) CarriesPayload() bool { return table[o].has(payload) }

// HasRETH reports whether an RDMA extended transport header follows: VA, RKey, DMALength.
func (o Opcode) HasRETH() bool { return table[o].has(reth) }

// HasAETH reports whether an ACK extended transport header follows: Syndrome, MSN.
func (o Opcode) HasAETH() bool { return table[o].has(aeth) }

// HasAtomicETH reports whether an atomic extended transport header follows: VA, RKey,
// SwapAdd, Compare.
func (o Opcode) HasAtomicETH() bool { return table[o].has(atomicETH) }

// HasAtomicAck reports whether the original value of an atomic follows.
func (o Opcode) HasAtomicAck() bool { return table[o].has(atomicAck) }

// HasImmediate reports whether four bytes of immediate data follow.
func (o Opcode) HasImmediate() bool { return table[o].has(immediate) }

// HasInvalidate reports whether the rkey that the peer shall invalidate follows.
func (o Opcode) HasInvalidate() bool { return table[o].has(invalidate) }

// HasDETH reports whether a datagram extended transport header follows: QKey, SourceQPN.
func (o Opcode) HasDETH() bool { return table[o].has(deth) }
