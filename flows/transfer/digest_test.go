package transfer

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestDigest: the hash of the whole is the same whatever the pieces, with holes or with zeros, and when it goes on from a
// state.
func TestDigest(t *testing.T) {
	for _, size := range []int{0, 1, leafSize - 1, leafSize, 5*leafSize + 3, 8 * leafSize} {
		b := content(9, size)
		if size > 3*leafSize {
			clear(b[leafSize : 3*leafSize])
		}
		want := wholeHash(b)
		for _, piece := range []int{1, 2, 4} {
			for _, holes := range []bool{false, true} {
				for resumeAt := -1; resumeAt < 6; resumeAt++ {
					if got := inPieces(t, b, piece*leafSize, holes, resumeAt); got != want {
						t.Errorf("%d bytes in pieces of %d MiB, holes %t, going on behind piece %d: %x, want %x", size, piece, holes, resumeAt, got, want)
					}
				}
			}
		}
	}
	d := newDigest()
	if err := d.restore(1<<20, []byte("no state")); err == nil {
		t.Error("a state that is none was taken")
	}
}

// TestLeaves: hashes of leaves are those that b3sum prints for the same bytes, and none allocates.
func TestLeaves(t *testing.T) {
	b := make([]byte, leafSize)
	for i := range b {
		b[i] = byte(i % 251) // as in BLAKE3's test vectors
	}
	for size, want := range map[int]string{
		0:            "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262",
		1:            "2d3adedff11b61f14c886e35afa036736dcd87a74d27b5c1510225d0f592e213",
		1024:         "42214739f095a406f3fc83deb889744ac00df831c10daa55189b5d121c855af7",
		1025:         "d00278ae47eb27b34faecf67b4fe263f82d5412916c1ffd97c8cb7fb814b8444",
		8192:         "aae792484c8efe4f19e2ca7d371d8c467ffb10748d8a5a1ae579948f718a2a63",
		8193:         "bab6c09cb8ce8cf459261398d2e7aef35700bf488116ceb94a36d0f5f1b7bc3b",
		102400:       "bc3e3d41a1146b069abffad3c0d44860cf664390afce4d9661f7902e7943e085",
		leafSize - 1: "f32b849d19684c18c138cf13e29dbadc776f4bc2a56b477680ef546b39ac3f71",
		leafSize:     "74cb441fd087764ca9c3694da742ebe30cbeb3060a17009ca81825c7a8d10343",
	} {
		if got := fmt.Sprintf("%x", hashLeaf(b[:size])); got != want {
			t.Errorf("%d bytes: %s, want %s", size, got, want)
		}
	}
	work := newHashing(4 * leafSize)
	work.bytes = bytes.Repeat(b, 4)
	if n := testing.AllocsPerRun(5, work.run); n != 0 {
		t.Errorf("a piece of 4 MiB takes %v allocations", n)
	}
}

// BenchmarkPiece hashes pieces of 4 MiB.
func BenchmarkPiece(b *testing.B) {
	work := newHashing(4 * leafSize)
	work.bytes = content(1, 4*leafSize)
	b.SetBytes(4 * leafSize)
	b.ReportAllocs()
	for b.Loop() {
		work.run()
	}
}

// inPieces hashes bytes piece by piece, and goes on from the state behind one of them.
func inPieces(t *testing.T, b []byte, piece int, holes bool, resumeAt int) [32]byte {
	t.Helper()
	d, work := newDigest(), newHashing(uint64(piece))
	for n, at := 0, 0; at < len(b); n++ {
		end := min(at+piece, len(b))
		if holes && at == leafSize && len(b) > 3*leafSize {
			end = 3 * leafSize
			for did := uint64(0); did < 2*leafSize; {
				did += d.addZeros(2*leafSize - did)
			}
		} else {
			if holes && at < leafSize && end > leafSize {
				end = leafSize
			}
			work.bytes = b[at:end]
			if work.run(); work.sum != crc32.Checksum(b[at:end], castagnoli) {
				t.Errorf("the checksum of a piece is %#x", work.sum)
			}
			d.add(uint64(end-at), work.leaves)
		}
		at = end
		if n == resumeAt {
			state := d.save(nil)
			d = newDigest()
			testenv.Must(t, d.restore(uint64(at), state))
		}
	}
	return d.sum()
}

// TestParts: a source is cut into pieces and holes that cover it, begin where they may, and hold all of its data.
func TestParts(t *testing.T) {
	dir := testenv.DiskDir(t)
	const size = 40<<20 + 77
	for name, data := range map[string][]int64{
		"all a hole": {}, "begin": {0}, "end": {size - 1}, "boundary": {4<<20 - 1, 4 << 20}, "middle": {9<<20 + 5000}, "dots": {0, 2 << 20, 3 << 20, 3<<20 + 700<<10, 30 << 20},
		"last leaf": {40 << 20},
	} {
		path := filepath.Join(dir, name)
		f, err := os.Create(path)
		testenv.Must(t, err)
		testenv.Must(t, f.Truncate(size))
		for _, at := range data {
			if _, err := f.WriteAt([]byte{1}, at); err != nil {
				t.Fatal(err)
			}
		}
		testenv.Must(t, errors.Join(f.Sync(), f.Close()))
		s, err := openSource(path)
		testenv.Must(t, err)
		for _, piece := range []uint64{1 << 20, 4 << 20, 64 << 20} {
			checkParts(t, fmt.Sprintf("%s, pieces of %d", name, piece), s, piece, data)
		}
		testenv.Check(t, s.close())
	}
}

func checkParts(t *testing.T, what string, s *source, piece uint64, data []int64) {
	t.Helper()
	inHoles := uint64(0)
	for at := uint64(0); at < s.size; {
		p, err := s.next(at, piece)
		testenv.Must(t, err)
		end := p.at + p.length
		if p.at != at || p.length == 0 || end > s.size || end%leafSize != 0 && end != s.size || !p.hole && p.length > piece {
			t.Fatalf("%s: %+v at %d", what, p, at)
		}
		for _, d := range data {
			if p.hole && uint64(d) >= p.at && uint64(d) < end {
				t.Errorf("%s: %+v has data at %d", what, p, d)
			}
		}
		if p.hole {
			inHoles += p.length
		}
		at = end
	}
	if least := uint64(35-len(data)) << 20; inHoles < least && piece <= 4<<20 {
		t.Errorf("%s: %d bytes are in holes, want %d", what, inHoles, least)
	}
}

// TestSources: what is no source is refused, with the path.
func TestSources(t *testing.T) {
	testenv.Root(t)
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	testenv.Must(t, unix.Mkfifo(fifo, 0o600))
	for _, path := range []string{dir, fifo, "/dev/null", filepath.Join(dir, "missing")} {
		if s, err := openSource(path); err == nil {
			t.Errorf("%s was opened: %+v", path, s)
		}
	}
}

// TestIdentity: the identity of a source stays while nobody writes it, and only then.
func TestIdentity(t *testing.T) {
	path := file(t, "file", content(1, 10000))
	identity := func() [32]byte {
		s, err := openSource(path)
		testenv.Must(t, err)
		defer s.close()
		return s.identity()
	}
	before := identity()
	if identity() != before {
		t.Error("it changes by itself")
	}
	when := time.Unix(1, 0)
	for name, change := range map[string]func() error{
		"bytes": func() error { return os.WriteFile(path, content(2, 10000), 0o600) },
		"times": func() error { return os.Chtimes(path, when, when) },
	} {
		testenv.Must(t, change())
		after := identity()
		if after == before {
			t.Errorf("%s have changed, and it has not", name)
		}
		before = after
	}
}

// TestLimiter: bytes are spread over time, in parts, also after a pause.
func TestLimiter(t *testing.T) {
	l := limiter{rate: 10 << 20}
	now := time.Now()
	begin, sent := now, uint64(0)
	for now.Sub(begin) < 2*time.Second {
		if l.wait(now) > 0 {
			now = now.Add(time.Millisecond)
			continue
		}
		n := l.part(4 << 20)
		if n < leastPart || n > 256<<10 {
			t.Fatalf("a part has %d bytes", n)
		}
		l.took(n, now)
		sent += n
	}
	if sent < 19<<20 || sent > 22<<20 {
		t.Errorf("%d bytes in two seconds", sent)
	}
	now = now.Add(time.Hour)
	burst := uint64(0)
	for l.wait(now) <= 0 {
		n := l.part(4 << 20)
		l.took(n, now)
		burst += n
	}
	if burst > 1<<20 {
		t.Errorf("%d bytes at once after a pause", burst)
	}
	if free := (&limiter{}); free.part(5) != 5 || free.wait(now) != 0 {
		t.Error("without a limit there is one")
	}
}
