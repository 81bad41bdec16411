package privsep

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/umem"
)

// memoryMarker is set in the environment of a daemon that inherits its region's memory from the
// parent process. Its value is the number of files: the first descriptors after the standard ones.
const memoryMarker = "UNIFIEDD_MEMORY"

// firstFile is the first descriptor that exec.Cmd uses for ExtraFiles. mostFiles is the largest
// number of files of a region's memory: the region, the control area, and one for each slice.
const firstFile, mostFiles = 3, 2 + umem.MaxSlices

// freeMemory takes the region's memory from free huge pages.
func (o Options) freeMemory() (*umem.Memory, error) {
	if o.Region == nil {
		return nil, nil
	}
	return umem.AllocateFree(*o.Region)
}

// allocate makes the region's memory. It reserves the huge pages that are missing, if it may.
func (o Options) allocate() (*umem.Memory, error) {
	if o.Region == nil || o.Free {
		return o.freeMemory()
	}
	enough := sayIfSlow(os.Stderr, silence, "reserving memory for the region: the kernel looks for huge pages")
	m, err := umem.Allocate(*o.Region)
	enough()
	switch {
	case err != nil && o.Region.Device != "":
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("%w (start as root, or reserve them at boot)", err)
	}
	if n := m.Added(); n > 0 && o.Announce {
		fmt.Fprintf(os.Stderr, "reserved %d huge pages until the end\n", n)
	}
	return m, nil
}

// silence is how long a person may wait without a word.
const silence = 500 * time.Millisecond

// sayIfSlow writes a line when a time has passed, unless the returned function is called before.
func sayIfSlow(w io.Writer, after time.Duration, line string) (enough func()) {
	t := time.AfterFunc(after, func() { fmt.Fprintln(w, line) })
	return func() { t.Stop() }
}

// inherited returns the memory that the parent process has passed on, nil if none. Programs that
// the daemon starts do not inherit it.
func inherited() (*umem.Memory, error) {
	text := os.Getenv(memoryMarker)
	if text == "" {
		return nil, nil
	}
	os.Unsetenv(memoryMarker)
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > mostFiles {
		return nil, fmt.Errorf("%s is %q, which is no number of files", memoryMarker, text)
	}
	var files []*os.File
	for i := range n {
		unix.CloseOnExec(firstFile + i)
		files = append(files, os.NewFile(uintptr(firstFile+i), "region"))
	}
	return umem.MemoryOf(files...), nil
}
