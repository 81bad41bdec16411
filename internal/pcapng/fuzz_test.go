package pcapng

import (
	"bytes"
	"errors"
	"hash/crc32"
	"testing"
)

// tiny is a segment small enough to fuzz quickly: three batches of two short packets, after a plain head.
func tiny() *segment {
	s := &segment{align: 512, id: SegmentID{1}}
	head, err := AppendSegmentHead(nil, Section{}, []Interface{{Name: "a"}, {Name: "b"}, {Name: "c"}}, Segment{ID: s.id, Align: 512})
	if err != nil {
		panic(err)
	}
	s.file = head
	for i := range uint64(3) {
		s.add(packedLayout, uint64(len(s.file)), testPacket(i, 20), testPacket(i+1, 33))
	}
	return s
}

func seeds() [][]byte {
	slot, holed := tiny(), tiny()
	slot.add(slotLayout, 0, testPacket(3, 20))
	holed.wipe(1, 0)
	mended := &memFile{data: bytes.Clone(holed.file)}
	if _, err := Recover(mended, Options{}); err != nil {
		panic(err)
	}
	return [][]byte{tiny().file, slot.file, holed.file, mended.data, append(tiny().file, make([]byte, 600)...), {}}
}

// mendChecksums gives every aligned mark a correct checksum. Otherwise the fuzzer would never get
// past it.
func mendChecksums(file []byte) {
	for at := 0; at+MinMarkLen <= len(file); at += 4 {
		if le.Uint32(file[at:]) == TypeMark && le.Uint32(file[at+markMagic:]) == magic {
			le.PutUint32(file[at+markCRC:], crc32.Checksum(file[at:at+markCRC], castagnoli))
		}
	}
}

// For any bytes: if Recover refuses the file, it leaves the file unchanged. Otherwise the result is a file
// that walk and Recover accept.
func FuzzRecover(f *testing.F) {
	for _, s := range seeds() {
		f.Add(s, false)
		f.Add(s, true)
	}
	f.Fuzz(func(t *testing.T, data []byte, checksums bool) {
		data = bytes.Clone(data)
		if checksums {
			mendChecksums(data)
		}
		m := &memFile{data: bytes.Clone(data)}
		r, err := Recover(m, Options{})
		if err != nil {
			if !errors.Is(err, ErrNotSegment) || !bytes.Equal(m.data, data) {
				t.Fatalf("%v, %d changes", err, m.changes)
			}
			return
		}
		if n := len(walked(t, m.data)); uint64(n) != r.Packets || int64(len(m.data)) != r.Kept {
			t.Fatalf("%d packets in %d bytes, report %+v", n, len(m.data), r)
		}
		m.changes = 0
		if again := mustRecover(t, m); !again.Clean || m.changes != 0 || again.Packets != r.Packets {
			t.Fatalf("first %+v\nsecond %+v", r, again)
		}
	})
}

// For any bytes, walk ends, and its blocks tile the range that it walked over.
func FuzzWalk(f *testing.F) {
	for _, s := range seeds() {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		end := int64(0)
		err := walk(bytes.NewReader(data), int64(len(data)), func(b Block) error {
			if b.Offset != end || len(b.Body)+12 != b.Len() {
				t.Fatalf("block at %d of %d bytes behind %d", b.Offset, b.Len(), end)
			}
			end += int64(b.Len())
			return nil
		})
		if err == nil && end != int64(len(data)) || err != nil && !errors.Is(err, errFormat) {
			t.Fatalf("walked %d of %d bytes: %v", end, len(data), err)
		}
	})
}

func BenchmarkRecover(b *testing.B) {
	s := newSegment(4096)
	var many []packet
	for i := range uint64(256) {
		many = append(many, testPacket(i, 1024))
	}
	for range 256 {
		s.add(slotLayout, 0, many...)
	}
	m := &memFile{data: s.file}
	b.SetBytes(int64(len(s.file)))
	for b.Loop() {
		if r, err := Recover(m, Options{}); err != nil || !r.Clean {
			b.Fatalf("%+v, %v", r, err)
		}
	}
}
