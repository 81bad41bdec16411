package capfile

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Packet is the place of a packet in a file, and its lengths and time.
type Packet struct {
	Offset int64  // of its first byte in the file
	Len    uint32 // bytes that are there
	Orig   uint32 // bytes it had
	Link   uint32 // LINKTYPE_ of its interface
	Time   uint64 // nanoseconds since 1970
	Timed  bool   // it has a time
}

// linkEthernet is LINKTYPE_ETHERNET.
const linkEthernet = 1

const (
	// MaxLen is the longest packet in bytes, the same as libpcap's (MAXIMUM_SNAPLEN).
	MaxLen = 256 << 10
	// MaxBlock is the longest block whose packet the parser reports only after it has read the
	// block's end.
	MaxBlock = 384 << 10
	// maxLongBlock is the longest block with a packet, the same as libpcap's and Wireshark's.
	maxLongBlock = 16 << 20
	// MaxWant is the most bytes that Want asks for.
	MaxWant = 32
	// maxInterfaces bounds the interfaces of a file that a parser remembers.
	maxInterfaces = 1 << 16
)

// Error is a mistake in a file, with its place.
type Error struct {
	Offset int64
	Reason error
}

// Error implements error.
func (e *Error) Error() string { return fmt.Sprintf("at offset %d: %v", e.Offset, e.Reason) }

// Unwrap returns the reason.
func (e *Error) Unwrap() error { return e.Reason }

// ErrCut is the reason when a file ends in the middle of a packet or block.
var ErrCut = errors.New("the file ends inside of it")

// errFormat is the reason when a file is no capture at all.
var errFormat = errors.New("neither pcap nor pcapng (other formats: editcap -F pcapng IN OUT)")

var (
	errVersion    = errors.New("a version of the format that is not known")
	errLength     = errors.New("an impossible length")
	errOrder      = errors.New("no byte order")
	errTrailer    = errors.New("the two lengths of the block differ")
	errOption     = errors.New("an option does not fit its block")
	errTime       = errors.New("a time before 1970 or after 2554, which 64 bits of nanoseconds cannot hold (tell the right one by editcap -t)")
	errInterface  = errors.New("the packet is of an interface that is not described")
	errInterfaces = errors.New("too many interfaces")
)

// Parser finds the packets of one file after the other. The zero value has no file: call Begin.
type Parser struct {
	// Growing files may have zeros in place of the next block: the file then ends there.
	Growing bool
	// Extra is how many bytes longer than usual the packet headers of a pcap file are, from Probe.
	Extra uint8

	size  int64
	place int64
	need  int
	step  step
	order order

	start, end int64 // of the block
	length     uint32
	found      bool // the block's packet
	packet     Packet

	interfaces []clock
	link       uint32 // of a pcap file
	fraction   uint64 // nanoseconds of its second unit
	ixia       bool   // it has a longer header
	swap       swapping
}

// step says which bytes a parser expects.
type step uint8

const (
	atStart step = iota
	atHeader
	atRecord
	atBlock
	atSection
	atInterface
	atOption
	atResolution
	atOffset
	atSimple
	atTrailer
)

// Begin begins a file of size bytes.
func (p *Parser) Begin(size int64) {
	*p = Parser{Growing: p.Growing, Extra: p.Extra, size: size, interfaces: p.interfaces[:0]}
	p.want(atStart, 0, 4)
}

// Want says which bytes the next call of Give must get; n is 0 at the end of the file.
func (p *Parser) Want() (place int64, n int) { return p.place, p.need }

// Keep returns an offset in the file. Later calls of Want, and the next packet from Give, need no
// bytes before it. Give returns a packet inside a block when it has the end of the block.
func (p *Parser) Keep() int64 {
	if p.step == atTrailer && p.found {
		return p.packet.Offset
	}
	return p.place
}

// want asks for n bytes, for a step.
func (p *Parser) want(s step, place int64, n int) {
	p.step, p.place, p.need = s, place, n
}

func (p *Parser) bad(reason error) error { return &Error{p.start, reason} }

// Give takes the bytes that Want asked for, and reports whether they locate a packet. The packet's own bytes
// need not have been read. After an error the caller must not call Give again.
func (p *Parser) Give(b []byte) (found Packet, ok bool, err error) {
	if p.place+int64(p.need) > p.size {
		return found, false, p.bad(ErrCut)
	}
	switch p.step {
	case atStart:
		err = p.begin(b)
	case atHeader:
		err = p.header(b)
	case atRecord:
		return p.record(b)
	case atBlock:
		return p.block(b)
	case atSection:
		err = p.section(b)
	case atInterface:
		err = p.describe(b)
	case atOption:
		err = p.option(b)
	case atResolution:
		err = p.resolution(b[0])
	case atOffset:
		err = p.offset(int64(p.u64(b)))
	case atSimple:
		return p.simple(p.u32(b))
	case atTrailer:
		return p.trailer(b)
	}
	return found, false, err
}

// begin recognises the format.
func (p *Parser) begin(b []byte) error {
	if binary.LittleEndian.Uint32(b) == blockSection {
		p.next(0)
		return nil
	}
	for _, p.order = range [...]order{little, big} {
		if p.magic(p.u32(b)) {
			p.want(atHeader, 0, headerLen)
			return nil
		}
	}
	return p.bad(errFormat)
}

// magic checks for the beginning of a pcap file, and reports whether it is one.
func (p *Parser) magic(v uint32) bool {
	p.fraction = 1000
	switch v {
	case magicMicro:
	case magicNano:
		p.fraction = 1
	case magicModified:
		p.Extra = max(p.Extra, extraModified)
	case magicIxiaCard, magicIxiaSoft:
		p.ixia = true
	default:
		return false
	}
	return true
}

// next continues after a block or record: with the next one, or at the end of the file.
func (p *Parser) next(at int64) {
	p.start = at
	p.want(atBlock, at, packetHeader)
	switch rest := p.size - at; {
	case rest == 0:
		p.need = 0
	case rest < packetHeader:
		p.need = int(max(rest, blockLeast))
	}
}
