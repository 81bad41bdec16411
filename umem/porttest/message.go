package porttest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/unifiedd/unifiedd/umem"
)

// message is the content of the suite's message number seq: the link's header, the number, and
// bytes that follow from both.
type message struct {
	link *Link
	seq  uint64
}

// size is the message's length: often one of the extremes, otherwise anything between.
func (m message) size() int {
	steps := (m.link.Max - m.link.Min) / m.link.Unit
	switch m.seq % 8 {
	case 0:
		return m.link.Min
	case 1:
		return m.link.Max
	}
	return m.link.Min + int(mix(m.seq)%uint64(steps+1))*m.link.Unit
}

// slot is where a device that stores keeps the message.
func (m message) slot() int { return int(m.seq % Slots) }

// cuts returns the lengths of the frames in which the message is sent: as few as fit, or one more
// if the device supports chains.
func (m message) cuts() []int {
	l, size := m.link, m.size()
	n := pieces(size, l.Room)
	if m.seq%2 == 1 && n < l.chain && size/l.Unit > n {
		n++
	}
	each := min(pieces(pieces(size, n), l.Unit)*l.Unit, l.Room)
	var cuts []int
	for ; size > 0; size -= each {
		cuts = append(cuts, min(size, each))
	}
	return cuts
}

// write fills b with the message's bytes from offset.
func (m message) write(b []byte, offset int) {
	from := int(mix(m.seq) % noiseStart)
	copy(b, m.link.noise[from+offset:])
	var seq [8]byte
	binary.LittleEndian.PutUint64(seq[:], m.seq)
	for i, c := range slices.Concat(m.link.Header, seq[:]) {
		if at := i - offset; at >= 0 && at < len(b) {
			b[at] = c
		}
	}
}

// check compares b with the message's bytes from offset.
func (m message) check(b []byte, offset int) error {
	want := m.link.scratch[:len(b)]
	m.write(want, offset)
	if bytes.Equal(b, want) {
		return nil
	}
	for i := range b {
		if b[i] != want[i] {
			return fmt.Errorf("message %d: byte %d is %#02x, sent was %#02x", m.seq, offset+i, b[i], want[i])
		}
	}
	return nil
}

// noiseStart is the number of places in the link's noise where a message may begin.
const noiseStart = 4096

// makeNoise prepares the source of the messages' bytes.
func (l *Link) makeNoise() {
	l.scratch = make([]byte, l.Max)
	l.noise = make([]byte, noiseStart+l.Max+8)
	for i := 0; i+8 <= len(l.noise); i += 8 {
		binary.LittleEndian.PutUint64(l.noise[i:], mix(uint64(i)+1))
	}
}

// read finds which message b is and compares all of it.
func (l *Link) read(b []byte) (message, error) {
	if len(b) < len(l.Header)+8 {
		return message{}, fmt.Errorf("message of %d bytes, none so short was sent", len(b))
	}
	m := message{l, binary.LittleEndian.Uint64(b[len(l.Header):])}
	if len(b) != m.size() {
		return m, fmt.Errorf("message %d: %d bytes arrived, sent were %d", m.seq, len(b), m.size())
	}
	return m, m.check(b, 0)
}

// mix hashes n (the finalizer of splitmix64).
func mix(n uint64) uint64 {
	n = (n ^ n>>30) * 0xbf58476d1ce4e5b9
	n = (n ^ n>>27) * 0x94d049bb133111eb
	return n ^ n>>31
}

// poisonOf returns the byte that fills a frame of the suite outside messages.
func poisonOf(start uint64) byte { return 0x5A ^ byte(mix(start)) }

// poison fills the frame that starts at start.
func poison(r *umem.Region, start uint64) {
	b := r.At(start, uint64(r.FrameSize()))
	b[0] = poisonOf(start)
	for n := 1; n < len(b); n *= 2 {
		copy(b[n:], b[:n])
	}
}

// poisoned checks that the frame's bytes from one offset to another are still poison.
func poisoned(r *umem.Region, start, from, to uint64) error {
	b := r.At(start+from, to-from)
	if len(b) == 0 || b[0] == poisonOf(start) && bytes.Equal(b[1:], b[:len(b)-1]) {
		return nil
	}
	i := slices.IndexFunc(b, func(c byte) bool { return c != poisonOf(start) })
	return fmt.Errorf("byte %d of the frame at %#x was overwritten with %#02x", from+uint64(i), start, b[i])
}
