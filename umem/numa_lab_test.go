package umem

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/numa"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestNUMARegion: all pages of a region for a node are on that node, according to the kernel's
// account of the process.
func TestNUMARegion(t *testing.T) {
	labenv.Guest(t)
	for _, node := range numa.Nodes() {
		for _, pages := range []PageSize{Huge2M, Ordinary} {
			t.Run(fmt.Sprintf("%v on node %d", pages, node), func(t *testing.T) {
				testenv.Leaks(t)
				r := open(t, Config{Size: 16 << 20, Pages: pages, Node: &node, Control: 2 << 20})
				where, err := r.Placement()
				if err != nil || len(where) != 1 || where[node] != r.Size() {
					t.Errorf("the region lies on %v: %v", where, err)
				}
				for _, memory := range [][]byte{r.Data(), r.Control()} {
					if got, want := accounted(t, memory), fmt.Sprintf("N%d=%d", node, uint64(len(memory))/pages.Bytes()); got != want {
						t.Errorf("the kernel accounts %s, want %s", got, want)
					}
				}
			})
		}
	}
}

// accounted returns what /proc/self/numa_maps says of a mapping: "N1=8", pages by node.
func accounted(t *testing.T, memory []byte) string {
	t.Helper()
	f, err := os.Open("/proc/self/numa_maps")
	testenv.Must(t, err)
	defer f.Close()
	var found []string
	for s := bufio.NewScanner(f); s.Scan(); {
		fields := strings.Fields(s.Text())
		if "0x"+fields[0] != fmt.Sprintf("%p", memory) {
			continue
		}
		for _, field := range fields {
			if len(field) > 1 && field[0] == 'N' && field[1] >= '0' && field[1] <= '9' {
				found = append(found, field)
			}
		}
	}
	return strings.Join(found, " ")
}

// TestNUMARefused: Open refuses a node that does not exist, and one without huge pages.
func TestNUMARefused(t *testing.T) {
	labenv.Guest(t)
	testenv.Leaks(t)
	all := numa.Nodes()
	missing := all[len(all)-1] + 1
	_, err := Open(Config{Size: 4 << 20, Node: &missing})
	if t.Log(err); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("node %d", missing)) || !strings.Contains(err.Error(), "has_memory") {
		t.Errorf("on node %d, which is not there: %v", missing, err)
	}
	last := all[len(all)-1]
	free, _, err := FreePages(Huge2M, last)
	testenv.Must(t, err)
	_, err = Open(Config{Size: (free + 1) << 21, Node: &last})
	if t.Log(err); err == nil || !strings.Contains(err.Error(), "nr_hugepages") {
		t.Errorf("more huge pages of node %d than there are: %v", last, err)
	}
	if len(all) > 1 && (!errors.Is(err, unix.EFAULT) && !errors.Is(err, unix.ENOMEM) || !strings.Contains(err.Error(), fmt.Sprintf("node%d/hugepages", last))) {
		t.Errorf("the error does not say where to raise them: %v", err)
	}
	if again, _, err := FreePages(Huge2M, last); err != nil || again != free {
		t.Errorf("%d huge pages were free, now %d: %v", free, again, err)
	}
}
