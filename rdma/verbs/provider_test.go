package verbs

import (
	"debug/elf"
	"os"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestLinksNoLibrary: a program starts on a machine without libibverbs.
func TestLinksNoLibrary(t *testing.T) {
	name, err := os.Executable()
	testenv.Must(t, err)
	f, err := elf.Open(name)
	testenv.Must(t, err)
	defer f.Close()
	libraries, err := f.ImportedLibraries()
	testenv.Must(t, err)
	for _, l := range libraries {
		if strings.Contains(l, "ibverbs") || strings.Contains(l, "rdma") {
			t.Errorf("the program is linked to %s", l)
		}
	}
}
