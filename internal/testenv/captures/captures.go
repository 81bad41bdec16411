// Package captures reads the captures of a test with readers of other projects, and rings on devices.
package captures

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/export"
	"github.com/unifiedd/unifiedd/internal/ring"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// Records reads the packets of capture files, up to the end or the first mistake.
func Records(t testing.TB, files ...string) (all []testenv.Captured) {
	t.Helper()
	for _, name := range files {
		some, _ := testenv.ReadCapture(t, name)
		all = append(all, some...)
	}
	return all
}

// Contents returns the packets' bytes.
func Contents(all []testenv.Captured) [][]byte {
	out := make([][]byte, len(all))
	for i := range all {
		out[i] = all[i].Data
	}
	return out
}

// Packets returns the bytes of the packets in files.
func Packets(t testing.TB, files ...string) [][]byte {
	t.Helper()
	return Contents(Records(t, files...))
}

// Complaints returns the lines that a reader prints about a file, except those that it always
// prints, and whether it failed. Any goroutine may call it.
func Complaints(path string, args ...string) (lines []string, failed bool) {
	cmd := exec.Command(path, args...)
	var said bytes.Buffer
	cmd.Stderr = &said
	err := cmd.Run()
	for line := range strings.Lines(said.String()) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "reading from file") && !strings.HasPrefix(line, "Running as user") {
			lines = append(lines, line)
		}
	}
	return lines, err != nil
}

// StandardReaders are the programs with which users open captures.
var StandardReaders = map[string][]string{
	"tshark":   {"-n", "-T", "fields", "-e", "frame.number", "-r"},
	"capinfos": {"-M"},
	"tcpdump":  {"-n", "-q", "-r"},
}

// dissected says that tshark has read a capture in this process.
var dissected atomic.Bool

// Readable checks that every standard reader can read stopped captures. In the short form tshark, which takes long to
// start, reads only the first captures of a process: capinfos reads files by the same library.
func Readable(t *testing.T, files ...string) {
	t.Helper()
	var all sync.WaitGroup
	defer all.Wait()
	for program, args := range StandardReaders {
		path := testenv.Tool(t, program)
		if program == "tshark" && dissected.Swap(true) && testing.Short() {
			continue
		}
		all.Go(func() {
			for _, f := range files {
				if lines, failed := Complaints(path, append(slices.Clone(args), f)...); failed || len(lines) > 0 {
					t.Errorf("%s of %s: failed %v, says %q", program, f, failed, lines)
				}
			}
		})
	}
}

// ExportRing exports the ring on a device to a file.
func ExportRing(t *testing.T, device string) string {
	t.Helper()
	in, err := os.Open(device)
	testenv.Must(t, err)
	defer in.Close()
	_ = unix.Fadvise(int(in.Fd()), 0, 0, unix.FADV_DONTNEED) // commands to a node bypass the page cache
	size, err := in.Seek(0, io.SeekEnd)
	testenv.Must(t, err)
	found, err := ring.Find(in, uint64(size))
	testenv.Must(t, err)
	out, err := os.Create(filepath.Join(t.TempDir(), "export.pcapng"))
	testenv.Must(t, err)
	defer out.Close()
	x := export.New(out, export.Select{})
	testenv.Must(t, x.AddRing(in, found.Ring))
	if _, err := x.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Name()
}

// Generations returns the generations of the segments whose heads are in the ring on a device.
func Generations(t testing.TB, device string) []uint64 {
	t.Helper()
	in, err := os.Open(device)
	testenv.Must(t, err)
	defer in.Close()
	size, err := in.Seek(0, io.SeekEnd)
	testenv.Must(t, err)
	found, err := ring.Find(in, uint64(size))
	testenv.Must(t, err)
	all, err := found.Generations(in)
	testenv.Must(t, err)
	return all
}
