package transfer

import (
	"bytes"
	"hash/crc32"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// someMessages have one of each kind.
var someMessages = []message{
	{kind: kindPiece, at: 3 << 20, length: 1 << 20, number: 2, value: 0x12345678, holes: true},
	{kind: kindHole, at: 4 << 20, length: 9 << 20},
	{kind: kindEnd, at: 13 << 20, digest: [32]byte{1, 2, 3, 31: 9}},
	{kind: kindAbort, number: uint32(protocol.Changed)},
	{kind: kindAlive},
	{kind: kindGrant, at: 0x7f0011223344, length: 4 << 20, number: 5, value: 0xabcdef01},
	{kind: kindDurable, at: 2 << 20},
	{kind: kindComplete, at: 13 << 20, digest: [32]byte{1, 2, 3, 31: 9}},
}

// FuzzMessage: any bytes are a message that is written as the same bytes, or are refused. Bytes with a right checksum get
// as far as the fields.
func FuzzMessage(f *testing.F) {
	for _, m := range someMessages {
		b := make([]byte, messageLen)
		m.put(b)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		again := bytes.Clone(b)
		if len(again) == messageLen {
			be.PutUint32(again[60:], crc32.Checksum(again[:60], castagnoli))
		}
		for _, in := range [][]byte{b, again} {
			m, why := parseMessage(in)
			if why != protocol.None {
				continue
			}
			out := make([]byte, messageLen)
			if m.put(out); !bytes.Equal(in, out) {
				t.Errorf("%x became %+v, and that %x", in, m, out)
			}
		}
	})
}

// FuzzRequest: any bytes are a request that is written as the same bytes, or are refused.
func FuzzRequest(f *testing.F) {
	for _, r := range []request{ask("file", 100), {piece: maxPiece, session: 1 << 63, size: maxSize, flags: knownFlags, mode: 0o7777, modified: unix.Timespec{Sec: -1, Nsec: 999_999_999}, name: "a/b"}} {
		b, err := r.append(nil)
		testenv.Must(f, err)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := parseRequest(b)
		if err != nil {
			if _, is := reasonIn(err); !is {
				t.Errorf("there is no reason in %v", err)
			}
			return
		}
		out, err := r.append(nil)
		if err != nil || !sameButCapabilities(b, out) {
			t.Errorf("%x became %+v, and that %x, %v", b, r, out, err)
		}
		if err := checkName(r.name); err == nil && (filepath.IsAbs(r.name) || !filepath.IsLocal(r.name)) {
			t.Errorf("%q was taken for a name", r.name)
		}
	})
}

// sameButCapabilities compares two hellos. Capabilities that a program does not know are ignored.
func sameButCapabilities(a, b []byte) bool {
	if len(a) != len(b) || len(a) < protocol.HelloLen {
		return false
	}
	a = bytes.Clone(a)
	copy(a[32:40], b[32:40])
	return bytes.Equal(a, b)
}

// FuzzAnswer: any bytes are an answer that is written as the same bytes, or are refused. A state of a hash that is none is
// refused.
func FuzzAnswer(f *testing.F) {
	r := ask("file", 100<<20)
	d := newDigest()
	d.addZeros(3 << 20)
	for _, a := range []answer{{piece: 4 << 20, window: 8, session: r.session, size: r.size}, {piece: 4 << 20, window: 8, session: r.session, size: r.size, next: 3 << 20, hashed: d.save(nil)}} {
		b, err := a.append(nil)
		testenv.Must(f, err)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := parseAnswer(b, &r)
		if err != nil {
			return
		}
		out, err := a.append(nil)
		if err != nil || !sameButCapabilities(b, out) {
			t.Errorf("%x became %+v, and that %x, %v", b, a, out, err)
		}
		d := newDigest()
		if err := d.restore(a.next, a.hashed); err == nil {
			d.addZeros(1 << 20) // a state that was taken must work
			_ = d.sum()
		}
	})
}

// FuzzRecord: a record file of any bytes is read as a record that can be written again, or as none. Nothing that is read
// from it leads beyond the copy.
func FuzzRecord(f *testing.F) {
	one := record{number: 1, size: 100 << 20, durable: 3 << 20, owner: 7, inode: 9, source: [32]byte{1}, hashed: []byte("state"), name: "a/b"}
	two := record{number: 2, size: 100, durable: 100, whole: true, complete: true, digest: [32]byte{5}, name: "/dev/sda", sampled: 100, samples: [32]byte{6}}
	b := make([]byte, 2*recordSlot)
	one.put(b[recordSlot:])
	two.put(b)
	f.Add(b)
	f.Add(b[:recordLen])
	f.Fuzz(func(t *testing.T, b []byte) {
		for from := 0; from+recordLen <= len(b) && from < 2*recordSlot; from += recordSlot {
			slot := bytes.Clone(b[from : from+recordLen])
			be.PutUint32(slot[recordSum:], crc32.Checksum(slot[:recordSum], castagnoli))
			checkRecord(t, slot)
		}
		path := filepath.Join(t.TempDir(), "record")
		testenv.Must(t, os.WriteFile(path, b, 0o600))
		file, err := os.OpenFile(path, os.O_RDWR, 0)
		testenv.Must(t, err)
		defer file.Close()
		r, err := openRecord(file)
		if err != nil {
			return // it is of another version
		}
		next := r.last
		next.durable, next.size, next.name = 1<<20, 2<<20, "x"
		next.whole, next.complete = false, false
		testenv.Must(t, r.write(next))
		if again, err := openRecord(file); err != nil || again.last.name != "x" || again.last.number != next.number+1 {
			t.Errorf("after %+v, %+v is read: %v", r.last, again, err)
		}
	})
}

// checkRecord checks a slot with a right checksum.
func checkRecord(t *testing.T, slot []byte) {
	r, err := parseRecord(slot)
	if err != nil {
		return
	}
	if r.durable > r.size || r.size > maxSize || len(r.name) > maxName || len(r.hashed) > maxHashed {
		t.Errorf("%+v", r)
	}
	out := make([]byte, recordLen)
	r.put(out)
	if again, err := parseRecord(out); err != nil || again.name != r.name || again.durable != r.durable || again.sampled != r.sampled || again.samples != r.samples {
		t.Errorf("%+v became %+v, %v", r, again, err)
	}
}
