package index

import (
	"bytes"
	"hash/crc32"
	"os"
	"path/filepath"
	"testing"

	"github.com/unifiedd/unifiedd/internal/need"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// FuzzFind: for an index with any bytes, a query ends and returns parts inside the segment or an error.
func FuzzFind(f *testing.F) {
	s := section{blocks: []block{{offset: 4096, length: 512, packets: 1, first: 5, last: 9}, {offset: 4608, length: 512, packets: 1, first: 6, last: 8}}}
	s.entries = append(s.entries, entry(short(hash1(kindPort, 80)), 1), entry(short(hash1(kindPort, 53)), 0))
	raw := s.encode(nil)
	sum := Summary{Size: 8192, Bytes: int64(headerLen + len(raw)), sections: 1}
	f.Add(append(sum.encode(), raw...), uint16(80))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, raw []byte, port uint16) {
		if len(raw) < headerLen+sectionLen(1, 0) {
			return
		}
		raw = mended(raw)
		name := filepath.Join(dir, "index")
		testenv.Must(t, os.WriteFile(name, raw, 0o600))
		file, err := os.Open(name)
		testenv.Must(t, err)
		defer file.Close()
		sum, err := decodeSummary(raw)
		if err != nil {
			return
		}
		r := &Reader{f: file, sum: sum}
		parts, err := r.Find(Query{From: 6, Need: need.Need{Kind: need.Port, Number: port}})
		if err != nil {
			return
		}
		at := int64(0)
		for _, p := range parts {
			if p.Offset < at || p.Length <= 0 || p.Offset+p.Length > sum.Size {
				t.Fatalf("parts %v of a segment of %d bytes", parts, sum.Size)
			}
			at = p.Offset + p.Length
		}
	})
}

// mended is an index with the right length and checksums, if it has one section.
func mended(raw []byte) []byte {
	raw = bytes.Clone(raw)
	n := len(raw) - 4
	le.PutUint64(raw[40:], uint64(len(raw)))
	le.PutUint32(raw[headerLen-4:], crc32.Checksum(raw[:headerLen-4], castagnoli))
	le.PutUint32(raw[n:], crc32.Checksum(raw[headerLen:n], castagnoli))
	return raw
}
