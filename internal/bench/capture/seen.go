package capture

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/pcapgo"
)

// Where unified-xdp-test puts its mark and the number of a packet.
const (
	magicAt    = 14 + 20 + 8
	numberAt   = magicAt + 4
	numberEnds = numberAt + 8
	magic      = 0x75786470
)

// seen counts the packets that were found in files.
type seen struct {
	packets uint64   // that are not the kernel's own, numbered or not
	words   []uint64 // a bit for each number
	numbers uint64   // that are there
	twice   uint64   // numbers that were there already
	beyond  uint64   // numbers that were never sent
	foreign uint64   // not of our sender
	bytes   int64    // of the files
}

// newSeen expects numbers below n.
func newSeen(n int) *seen { return &seen{words: make([]uint64, (n+63)/64)} }

// add counts a packet.
func (s *seen) add(p []byte) {
	if len(p) < numberEnds || binary.BigEndian.Uint32(p[magicAt:]) != magic {
		s.foreign++
		return
	}
	s.packets++
	n := binary.BigEndian.Uint64(p[numberAt:])
	switch word, bit := n/64, uint64(1)<<(n%64); {
	case word >= uint64(len(s.words)):
		s.beyond++
	case s.words[word]&bit != 0:
		s.twice++
	default:
		s.words[word] |= bit
		s.numbers++
	}
}

// sound returns an error if the files have a fault other than missing packets.
func (s *seen) sound() error {
	if s.twice > 0 || s.beyond > 0 {
		return fmt.Errorf("of %d packets %d are there twice, and %d were never sent", s.packets, s.twice, s.beyond)
	}
	return nil
}

// format reads the packets of one file.
type format func(r io.Reader, each func(packet []byte)) error

// read counts the packets of all files that match a pattern.
func (s *seen) read(pattern string, f format) error {
	files, err := filepath.Glob(pattern)
	if err != nil {
		return err
	}
	for _, name := range files {
		if err := s.readFile(name, f); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func (s *seen) readFile(name string, f format) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	s.bytes += info.Size()
	return f(file, s.add)
}

// reader is a file reader of gopacket.
type reader interface {
	ZeroCopyReadPacketData() ([]byte, gopacket.CaptureInfo, error)
}

func readAll(r reader, each func([]byte)) error {
	for {
		data, _, err := r.ZeroCopyReadPacketData()
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) { // also of a file that is being written
			return nil
		}
		if err != nil {
			return err
		}
		each(data)
	}
}

func readPcapng(r io.Reader, each func([]byte)) error {
	ng, err := pcapgo.NewNgReader(r, pcapgo.NgReaderOptions{})
	if err != nil {
		return err
	}
	return readAll(ng, each)
}

func readPcap(r io.Reader, each func([]byte)) error {
	p, err := pcapgo.NewReader(r)
	if err != nil {
		return err
	}
	return readAll(p, each)
}
