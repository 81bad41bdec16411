// Package rping has what the program rping of rdma-core says over a connection of rdma_cm: each side is told where it
// may read or write, in messages of 16 bytes.
//
// For each ping the client sends where its data is, and the server reads it; when it has, it sends a message whose
// contents do not matter. Then the client sends where it wants the data, the server writes it there, and sends such
// a message again. librdmacm/examples/rping.c.
package rping

import (
	"encoding/binary"
	"fmt"
	"math"
)

// What rping takes for granted unless told otherwise, and its limits.
const (
	Port     = 7174
	Size     = 64 // bytes of a ping
	Least    = 28 // and at least: a line of text with a number fits
	Most     = 64<<10 - 1
	InfoSize = 16 // bytes of a message
)

// Info is memory of one side that the other may reach.
type Info struct {
	Addr uint64
	RKey uint32
	Size uint32
}

// Append appends it as it is sent.
func (i Info) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, i.Addr)
	b = binary.BigEndian.AppendUint32(b, i.RKey)
	return binary.BigEndian.AppendUint32(b, i.Size)
}

// Decode reads a message, and refuses what is no memory or more than there is room for.
func Decode(b []byte, room uint64) (Info, error) {
	if len(b) != InfoSize {
		return Info{}, fmt.Errorf("a message of %d bytes is none of rping's, which have %d", len(b), InfoSize)
	}
	i := Info{Addr: binary.BigEndian.Uint64(b), RKey: binary.BigEndian.Uint32(b[8:]), Size: binary.BigEndian.Uint32(b[12:])}
	switch {
	case i.Size == 0 || uint64(i.Size) > room:
		return i, fmt.Errorf("a ping of %d bytes: it must have 1 to %d", i.Size, room)
	case i.Addr > math.MaxUint64-uint64(i.Size):
		return i, fmt.Errorf("a ping of %d bytes from %#x on is beyond all memory", i.Size, i.Addr)
	}
	return i, nil
}

// Fill writes what ping number n has: a line of text, then letters from one on that is another each time. The
// last byte is zero, as that of a C string.
func Fill(b []byte, n int) {
	const first, last = 'A', 'z'
	head := copy(b, fmt.Sprintf("rdma-ping-%d: ", n))
	c := first + n%(last-first+1)
	for i := head; i < len(b); i++ {
		b[i] = byte(c)
		if c++; c > last {
			c = first
		}
	}
	if len(b) > 0 {
		b[len(b)-1] = 0
	}
}
