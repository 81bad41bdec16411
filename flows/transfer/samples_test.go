package transfer

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestSamples: the samples that are taken while a copy arrives are those that are read from the device later, and one
// changed byte of any of them is found.
func TestSamples(t *testing.T) {
	bytes := content(1, 5*leafSize+700)
	const holes = 90*leafSize + 5*leafSize // the second run of zeros ends within a leaf
	path := filepath.Join(testenv.DiskDir(t), "device")
	testenv.Must(t, os.WriteFile(path, bytes[:5*leafSize], 0o600), os.Truncate(path, 5*leafSize+holes))
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	testenv.Must(t, err)
	defer f.Close()
	_, err = f.WriteAt(bytes, 5*leafSize+holes)
	testenv.Must(t, err)
	s := newSamples()
	check := func() {
		t.Helper()
		found, err := readSamples(path, s.at)
		if err != nil || found.sum() != s.sum() || found.at != s.at || found.step != s.step || len(found.kept) != len(s.kept) || len(s.kept) > mostSamples {
			t.Fatalf("at %d: %d samples with steps of %d, and %d with %d are read: %v", s.at, len(s.kept), s.step, len(found.kept), found.step, err)
		}
	}
	add := func(b []byte) {
		h := newHashing(uint64(len(b)))
		h.bytes = b
		h.run()
		s.add(uint64(len(b)), h.leaves)
		check()
	}
	check()
	add(bytes[:leafSize])
	add(bytes[leafSize : 5*leafSize])
	s.addZeros(leafSize)
	check()
	s.addZeros(holes - leafSize)
	check()
	add(bytes)
	size := s.at
	for _, at := range []uint64{0, s.step * leafSize, size - 1} {
		was := []byte{0}
		_, err := f.ReadAt(was, int64(at))
		testenv.Must(t, err)
		_, err = f.WriteAt([]byte{was[0] + 1}, int64(at))
		testenv.Must(t, err)
		if found, err := readSamples(path, size); err != nil || found.sum() == s.sum() {
			t.Errorf("a changed byte %d is not found: %v", at, err)
		}
		_, err = f.WriteAt(was, int64(at))
		testenv.Must(t, err)
	}
	check()
	s = newSamples()
	add(bytes[:5*leafSize])
	s.addZeros(leafSize + 100)
	testenv.Must(t, f.Truncate(int64(s.at)))
	check()
	if _, err := readSamples(path, s.at+1); err == nil {
		t.Error("more was read than there is")
	}
}
