package verbs

import (
	"debug/elf"
	"os"
	"strings"
	"testing"
)

// TestLinksNoLibrary: a program starts on a machine without libibverbs.
func TestLinksNoLibrary(t *testing.T) {
	name, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	libraries, err := f.ImportedLibraries()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range libraries {
		if strings.Contains(l, "ibverbs") || strings.Contains(l, "rdma") {
			t.Errorf("the program is linked to %s", l)
		}
	}
}
