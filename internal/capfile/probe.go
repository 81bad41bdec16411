package capfile

import (
	"io"
	"slices"

	"github.com/unifiedd/unifiedd/internal/linktype"
)

// How much longer the packet headers are in files of patched libpcaps.
const (
	extraNokia    = 4  // with the usual magic number
	extraModified = 8  // interface, protocol and kind of packet
	extraSuse     = 12 // and the processors
)

// probed is the number of packet headers that Probe reads.
const probed = 3

// Probe returns how many bytes longer than usual the packet headers of a pcap file of size bytes
// are, for Parser.Extra. Patched libpcaps wrote such files without a magic number of their own. So
// Probe returns the length with which the first headers are plausible.
func Probe(r io.ReaderAt, size int64) (extra uint8) {
	var b [headerLen]byte
	if _, err := r.ReadAt(b[:], 0); err != nil {
		return 0
	}
	var p Parser
	p.Begin(size)
	if _, _, err := p.Give(b[:4]); err != nil || p.fraction == 0 {
		return 0
	}
	lengths := []uint8{0, extraModified, extraNokia}
	if p.Extra == extraModified {
		lengths = []uint8{extraModified, extraSuse}
	}
	if _, _, err := p.Give(b[:]); err != nil || p.ixia || p.fraction == 1 || p.swap != swapNever {
		return 0
	}
	for _, extra := range lengths {
		if p.fits(r, extra) {
			return extra
		}
	}
	return lengths[0]
}

// fits reports whether the first packets' headers are plausible if they are longer by extra bytes.
func (p *Parser) fits(r io.ReaderAt, extra uint8) bool {
	var b [recordLen]byte
	at, first := int64(headerLen), uint32(0)
	for n := range probed {
		if at == p.size {
			return true
		}
		if _, err := r.ReadAt(b[:], at); err != nil {
			return at > headerLen // cut: what is in front of that tells
		}
		second, micro, length, orig := p.u32(b[:]), p.u32(b[4:]), p.u32(b[8:]), p.u32(b[12:])
		if n == 0 {
			first = second
		}
		if length > MaxLen || orig == 0 || orig > maxLongBlock || micro >= 1e6 || max(first, second)-min(first, second) > decades {
			return false
		}
		at += recordLen + int64(extra) + int64(length)
		if at > p.size { // a capture that was killed ends in the middle of a packet
			return n > 0
		}
	}
	return true
}

// decades is the most seconds between the first packets of a file. Bytes of a packet that are taken for a header often
// have a time of 1970.
const decades = 1e9

// mostSteps bounds how much of a file Links reads.
const mostSteps = 1 << 16

// Links returns the link types of the interfaces that a capture of size bytes describes before its
// first packet, each once. It does not report mistakes; reading the capture does.
func Links(r io.ReaderAt, size int64, extra uint8) (all []linktype.Type) {
	p := Parser{Extra: extra, Growing: true}
	p.Begin(size)
	var b [MaxWant]byte
	for range mostSteps {
		at, n := p.Want()
		if n == 0 {
			break
		}
		if _, err := r.ReadAt(b[:n], at); err != nil {
			break
		}
		_, found, err := p.Give(b[:n])
		if err != nil {
			return nil
		}
		if found {
			break
		}
	}
	if p.fraction != 0 {
		return []linktype.Type{linktype.Type(p.link)}
	}
	for i := range p.interfaces {
		if of := linktype.Type(p.interfaces[i].link); !slices.Contains(all, of) {
			all = append(all, of)
		}
	}
	return all
}
