package powercut

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"github.com/unifiedd/unifiedd/selftests/harness"
)

// A host writes blocks of blockLen bytes one after the other, at most as many as fit on any target.
const (
	blockLen   = 4096
	mostBlocks = 8 * mib / blockLen
)

// block is the content of the host's block n. No two sectors are equal.
func (f flow) block(n uint64) []byte {
	b := make([]byte, blockLen)
	for i := range blockLen / sector {
		harness.Fill(b[i*sector:][:sector], uint64(f.number), n<<8|uint64(i))
	}
	return b
}

// tryTargets checks the blocks that hosts have written. durable is how many blocks each flow
// acknowledged as durable.
func (s *state) tryTargets(durable map[uint32]uint64) error {
	var errs []error
	for _, f := range s.begun {
		if err := s.tryTarget(f, durable[uint32(f.number)]); err != nil {
			errs = append(errs, fmt.Errorf("flow %d: %w", f.number, err))
		}
	}
	return errors.Join(errs...)
}

func (s *state) tryTarget(f flow, durable uint64) error {
	file, err := os.Open(s.path(f))
	if err != nil {
		return fmt.Errorf("%w: %w", errLost, err)
	}
	defer file.Close()
	b := make([]byte, blockLen)
	for n := range uint64(mostBlocks) {
		if _, err := file.ReadAt(b, int64(n*blockLen)); err != nil {
			return fmt.Errorf("%w: block %d: %w", errLost, n, err)
		}
		switch want := f.block(n); {
		case n < durable && !bytes.Equal(b, want):
			return fmt.Errorf("%w: block %d of %d", errLost, n, durable)
		case n >= durable && !f.onDevice() && !f.partly(b, want):
			return fmt.Errorf("%w: block %d, behind %d durable ones", errAlien, n, durable)
		}
	}
	return nil
}

// partly reports whether each sector of a block has what the host wrote to it, or zeros.
func (f flow) partly(b, want []byte) bool {
	zeros := make([]byte, sector)
	for at := 0; at < len(b); at += sector {
		if one := b[at:][:sector]; !bytes.Equal(one, zeros) && !bytes.Equal(one, want[at:][:sector]) {
			return false
		}
	}
	return true
}
