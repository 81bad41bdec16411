package ring

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestOpen: Open opens a file as it is. It refuses a character device that is not an NVMe node, and
// names it.
func TestOpen(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	testenv.Must(t, os.WriteFile(name, []byte("ring"), 0o600))
	f, err := Open(name)
	testenv.Must(t, err)
	defer f.Close()
	var b [4]byte
	if _, err := f.ReadAt(b[:], 0); err != nil || string(b[:]) != "ring" {
		t.Errorf("read %q: %v", b, err)
	}
	if _, err := Open(os.DevNull); err == nil || !strings.Contains(err.Error(), "/dev/null is a character device and no NVMe node") {
		t.Errorf("%v", err)
	}
	if _, err := Open(name + "s"); !os.IsNotExist(err) {
		t.Errorf("%v", err)
	}
}
