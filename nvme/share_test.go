package nvme

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestShare: a disk that is open with a number cannot be opened with another one, by whatever name. It can be once
// the last with the first number is closed.
func TestShare(t *testing.T) {
	testenv.Root(t)
	dir := testenv.DiskDir(t)
	file, link := filepath.Join(dir, "disk"), filepath.Join(dir, "link")
	testenv.Must(t, os.WriteFile(file, make([]byte, 1<<20), 0o600))
	testenv.Must(t, os.Link(file, link))
	for _, paths := range [][2]string{{file, link}, {testenv.Loop(t, file, 0), ""}} {
		open := func(path string, share uint64, readOnly bool) (*Target, error) {
			if path == "" {
				path = paths[0]
			}
			return OpenTarget(TargetConfig{Path: path, Filled: true, Force: true, ReadOnly: readOnly, Share: share})
		}
		var all []*Target
		for _, path := range paths {
			d, err := open(path, 7, path == "")
			testenv.Must(t, err)
			all = append(all, d)
		}
		for _, share := range []uint64{6, 8, 1<<61 + 6, 1<<61 - 1, 1 << 61} {
			for _, readOnly := range []bool{false, true} {
				if d, err := open(paths[1], share, readOnly); !errors.Is(err, ErrSharedOtherwise) {
					t.Errorf("%s is shared as 7 and as %d: %v", paths[0], share, err)
					if err == nil {
						testenv.Check(t, d.Close())
					}
				}
			}
		}
		d, err := open("", 0, false)
		testenv.Must(t, err)
		for _, one := range append(all, d) {
			testenv.Check(t, one.Close())
		}
		d, err = open("", 8, false)
		testenv.Must(t, err)
		testenv.Check(t, d.Close())
	}
}

// TestMeasure: a file that has grown has its new size when that is asked for, and a queue takes what is behind the old end.
func TestMeasure(t *testing.T) {
	path := filepath.Join(testenv.DiskDir(t), "disk")
	testenv.Must(t, os.WriteFile(path, make([]byte, 1<<20), 0o600))
	d, err := OpenTarget(TargetConfig{Path: path})
	testenv.Must(t, err)
	defer func() { testenv.Check(t, d.Close()) }()
	testenv.Must(t, os.Truncate(path, 2<<20))
	size, err := d.Measure()
	if err != nil || size != 2<<20 || d.Size() != 1<<20 {
		t.Errorf("%d bytes, %v; before %d", size, err, d.Size())
	}
	if d.Resize(size); d.Size() != 2<<20 {
		t.Errorf("%d bytes", d.Size())
	}
}
