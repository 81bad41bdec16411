package testenv

import (
	"errors"
	"io"
	"os"
	"testing"

	"github.com/gopacket/gopacket/pcapgo"
)

// Captured is one packet of a capture file.
type Captured struct {
	Interface int    // the interface's number in the file
	Time      int64  // nanoseconds since 1970
	Data      []byte // the packet's bytes; the caller owns them
}

// ReadCapture reads the packets of a pcapng file with a reader of another project. It stops at the
// end or at the first mistake, which it returns as the error. The test fails if the file does not
// exist or is not a capture.
func ReadCapture(t testing.TB, name string) (all []Captured, err error) {
	t.Helper()
	f, err := os.Open(name)
	Must(t, err)
	defer f.Close()
	r, err := pcapgo.NewNgReader(f, pcapgo.NgReaderOptions{})
	Mustf(t, err, "%s", name)
	for {
		data, info, err := r.ReadPacketData()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		all = append(all, Captured{info.InterfaceIndex, info.Timestamp.UnixNano(), data})
	}
}
