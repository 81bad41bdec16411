package transfer

import (
	"crypto/sha256"
	"fmt"
	"io"
	"os"
)

// samples are the hashes of some leaves that a copy has put on a device: the first, the last, and up to mostSamples with
// equal spaces between them. A file system, a volume or a table of partitions that somebody makes later changes one of
// them. So a record with their hash is compared with the device before the device counts as holding the rest of that copy.
type samples struct {
	at   uint64 // bytes, a multiple of leafSize until the end
	step uint64 // leaves from one sample to the next
	kept []leafHash
	last leafHash
}

// mostSamples limits what is read to continue a copy: as many MiB.
const mostSamples = 32

func newSamples() *samples { return &samples{step: 1, kept: make([]leafHash, 0, mostSamples+1)} }

// take takes one sample, of the leaf at a.
func (s *samples) take(leaf leafHash) {
	s.kept = append(s.kept, leaf)
	if len(s.kept) <= mostSamples {
		return
	}
	for i := range (len(s.kept) + 1) / 2 { // with the double space, every second one stays
		s.kept[i] = s.kept[2*i]
	}
	s.kept = s.kept[:(len(s.kept)+1)/2]
	s.step *= 2
}

// add adds the next n bytes.
func (s *samples) add(n uint64, leaves []leafHash) {
	for i, leaf := range leaves {
		if (s.at/leafSize+uint64(i))%s.step == 0 {
			s.take(leaf)
		}
		s.last = leaf
	}
	s.at += n
}

// addZeros adds the next n bytes, which are zeros.
func (s *samples) addZeros(n uint64) {
	whole := n / leafSize
	for i := s.at / leafSize; ; i++ {
		if i = (i + s.step - 1) / s.step * s.step; i >= s.at/leafSize+whole {
			break
		}
		s.take(zeroLeaf())
	}
	if whole > 0 {
		s.last = zeroLeaf()
	}
	s.at += whole * leafSize
	if rest := n % leafSize; rest > 0 {
		s.add(rest, []leafHash{hashLeaf(make([]byte, rest))})
	}
}

// sum is the hash of the samples.
func (s *samples) sum() [32]byte {
	b := make([]byte, 0, (mostSamples+1)*len(s.last))
	for i := range s.kept {
		b = append(b, s.kept[i][:]...)
	}
	return sha256.Sum256(append(b, s.last[:]...))
}

// readSamples reads the samples of the first n bytes of a device.
func readSamples(path string, n uint64) (*samples, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	s, b := newSamples(), make([]byte, leafSize)
	read := func(at uint64) (leafHash, error) {
		leaf := b[:min(n-at, leafSize)]
		if _, err := io.ReadFull(io.NewSectionReader(f, int64(at), int64(len(leaf))), leaf); err != nil {
			return leafHash{}, fmt.Errorf("read %d bytes at %d: %w", len(leaf), at, err)
		}
		return hashLeaf(leaf), nil
	}
	leaves := (n + leafSize - 1) / leafSize
	for leaves > mostSamples*s.step {
		s.step *= 2
	}
	for i := uint64(0); i < leaves; i += s.step {
		leaf, err := read(i * leafSize)
		if err != nil {
			return nil, err
		}
		s.kept = append(s.kept, leaf)
	}
	if leaves > 0 {
		if s.last, err = read((leaves - 1) * leafSize); err != nil {
			return nil, err
		}
	}
	s.at = n
	return s, nil
}
