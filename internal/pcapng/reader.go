package pcapng

import (
	"errors"
	"fmt"
	"io"
)

// errFormat is the error that every FormatError matches.
var errFormat = errors.New("not well-formed pcapng as unifiedd writes it")

// FormatError is a mistake in the bytes of a file, with its place.
type FormatError struct {
	Offset int64 // of the block
	Reason error
}

// Error implements error.
func (e *FormatError) Error() string {
	return fmt.Sprintf("capture file, block at offset %d: %v", e.Offset, e.Reason)
}

// Unwrap makes a FormatError match errFormat.
func (e *FormatError) Unwrap() []error { return []error{errFormat, e.Reason} }

// Block is one block of a file.
type Block struct {
	Offset int64 // in the file
	Type   uint32
	Body   []byte // between the lengths; the reader's buffer, dead with the next block
	raw    []byte // the whole block
}

// Len is the length of the whole block in bytes.
func (b Block) Len() int { return len(b.raw) }

// Packet is the contents of a packet block.
type Packet struct {
	Offset    int64 // of the block: in the file, or in the batch of EachPacket
	Interface uint32
	Time      uint64 // nanoseconds since the epoch
	OrigLen   uint32
	Data      []byte // dies with the block
}

// Packet reads a block of TypePacket; ok is false for any other, or when its lengths do not fit it.
func (b Block) Packet() (p Packet, ok bool) {
	if b.Type != TypePacket || len(b.Body) < 20 {
		return p, false
	}
	n := uint64(le.Uint32(b.Body[12:]))
	if n > MaxCapLen || 20+roundUp(n, 4) > uint64(len(b.Body)) {
		return p, false
	}
	p.Offset = b.Offset
	p.Interface = le.Uint32(b.Body)
	p.Time = uint64(le.Uint32(b.Body[4:]))<<32 | uint64(le.Uint32(b.Body[8:]))
	p.OrigLen = le.Uint32(b.Body[16:])
	p.Data = b.Body[20:][:n:n]
	return p, true
}

// Number returns the number that is a packet block's first option; ok is false if there is none.
func (b Block) Number() (n uint64, ok bool) {
	p, ok := b.Packet()
	if !ok {
		return 0, false
	}
	options := b.Body[20+roundUp(uint64(len(p.Data)), 4):]
	if len(options) < NumberLen || le.Uint16(options) != epbPacketID || le.Uint16(options[2:]) != 8 {
		return 0, false
	}
	return le.Uint64(options[4:]), true
}

// reader steps through blocks. It validates every length and never holds more than one window of the file.
type reader struct {
	w        *window
	pos, end int64
}

var (
	errCut       = errors.New("the file ends inside the block")
	errLength    = errors.New("impossible block length")
	errOverhang  = errors.New("the block is longer than what is left")
	errTrailer   = errors.New("the two block lengths differ")
	errBigEndian = errors.New("big-endian sections are not read")
)

// Next returns the next block; io.EOF after the last; a FormatError if the bytes are no block.
func (r *reader) Next() (Block, error) {
	if r.pos >= r.end {
		return Block{}, io.EOF
	}
	n, err := r.length()
	if err != nil {
		return Block{}, err
	}
	raw, err := r.w.bytes(r.pos, n)
	if err != nil {
		return Block{}, err
	}
	if le.Uint32(raw[n-4:]) != uint32(n) {
		return Block{}, r.bad(errTrailer)
	}
	b := Block{Offset: r.pos, Type: le.Uint32(raw), Body: raw[8 : n-4], raw: raw}
	r.pos += int64(n)
	return b, nil
}

// length reads the length of the block at pos and compares it with the rest of the file.
func (r *reader) length() (int, error) {
	if r.end-r.pos < minBlockLen {
		return 0, r.bad(errCut)
	}
	head, err := r.w.bytes(r.pos, minBlockLen)
	if err != nil {
		return 0, err
	}
	n := int64(le.Uint32(head[4:]))
	switch {
	case le.Uint32(head) == TypeSection && le.Uint32(head[8:]) == 0x4D3C2B1A:
		return 0, r.bad(errBigEndian)
	case n < minBlockLen || n > MaxBlockLen || n%4 != 0:
		return 0, r.bad(errLength)
	case n > r.end-r.pos:
		return 0, r.bad(errOverhang)
	}
	return int(n), nil
}

func (r *reader) bad(reason error) error { return &FormatError{Offset: r.pos, Reason: reason} }
