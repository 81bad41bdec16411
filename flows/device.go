package flows

import (
	"bytes"
	"fmt"
	"io"
	"os"

	"github.com/unifiedd/unifiedd/internal/pcapng"
	"github.com/unifiedd/unifiedd/nvme"
)

// sectionMagic is what every pcapng file begins with.
var sectionMagic = []byte{0x0a, 0x0d, 0x0d, 0x0a}

// checkUnused refuses a device that holds a capture, such as the one of the run
// before, unless it may be overwritten. Whatever else may be on it, opening it as
// a target finds.
func (s *store) checkUnused() error {
	if s.to.Force {
		return nil
	}
	f, err := os.Open(s.to.Device)
	if err != nil {
		return nil // opening it as a target says so better
	}
	defer f.Close()
	var start [4]byte
	if _, err := f.ReadAt(start[:], 0); err == nil && bytes.Equal(start[:], sectionMagic) {
		return fmt.Errorf("device %s: %w: it holds a capture (copy it away, then allow to overwrite it with force: true)", s.to.Device, nvme.ErrDeviceNotEmpty)
	}
	return nil
}

// mendable is f as recovery may treat it: of a device only the part that was
// written to is there, and it cannot be cut.
func (s *store) mendable(f *os.File, end uint64) pcapng.File {
	if s.to.Device == "" {
		return f
	}
	return writtenPart{f, int64(end)}
}

type writtenPart struct {
	*os.File
	end int64
}

// Seek takes the end of what was written for the end of the file.
func (w writtenPart) Seek(offset int64, whence int) (int64, error) {
	if whence == io.SeekEnd {
		return w.end + offset, nil
	}
	return w.File.Seek(offset, whence)
}

// Truncate does nothing: a device keeps its size.
func (w writtenPart) Truncate(int64) error { return nil }
