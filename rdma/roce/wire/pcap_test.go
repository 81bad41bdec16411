package wire

import (
	"bytes"
	"encoding/csv"
	"errors"
	"io"
	"os"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

const (
	pcapMagic = 0xa1b2c3d4
	ethernet  = 1
)

// readPcap returns the packets of a capture in the format of libpcap, little endian.
func readPcap(t testing.TB, name string) (packets [][]byte) {
	t.Helper()
	b, err := os.ReadFile(name)
	testenv.Must(t, err)
	if len(b) < 24 || le.Uint32(b) != pcapMagic || le.Uint32(b[20:]) != ethernet {
		t.Fatalf("%s is no capture of Ethernet", name)
	}
	for b = b[24:]; len(b) > 0; {
		n := int(le.Uint32(b[8:]))
		packets = append(packets, b[16:][:n])
		b = b[16+n:]
	}
	return packets
}

// writePcap writes such a capture.
func writePcap(packets [][]byte) []byte {
	b := le.AppendUint32(nil, pcapMagic)
	b = le.AppendUint16(le.AppendUint16(b, 2), 4)
	b = append(b, make([]byte, 8)...)
	b = le.AppendUint32(le.AppendUint32(b, 1<<18), ethernet)
	for i, p := range packets {
		b = le.AppendUint32(le.AppendUint32(b, uint32(i)), 0)
		b = le.AppendUint32(le.AppendUint32(b, uint32(len(p))), uint32(len(p)))
		b = append(b, p...)
	}
	return b
}

// readRows returns the lines of a golden file. The first line names the columns.
func readRows(t *testing.T, name string) (rows []map[string]string) {
	t.Helper()
	b, err := os.ReadFile(name)
	testenv.Must(t, err)
	r := csv.NewReader(bytes.NewReader(b))
	head, err := r.Read()
	for err == nil {
		var line []string
		if line, err = r.Read(); err == nil {
			row := map[string]string{}
			for i, v := range line {
				row[head[i]] = v
			}
			rows = append(rows, row)
		}
	}
	if !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	return rows
}
