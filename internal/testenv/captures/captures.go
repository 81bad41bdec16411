// Package captures reads the captures of a test: with foreign readers, and from rings on devices.
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
	"testing"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/export"
	"github.com/unifiedd/unifiedd/internal/ring"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// Records reads the packets of capture files up to the end or the first mistake.
func Records(t testing.TB, files ...string) (all []testenv.Captured) {
	t.Helper()
	for _, name := range files {
		some, _ := testenv.ReadCapture(t, name)
		all = append(all, some...)
	}
	return all
}

// Contents are the packets' bytes.
func Contents(all []testenv.Captured) [][]byte {
	out := make([][]byte, len(all))
	for i := range all {
		out[i] = all[i].Data
	}
	return out
}

// Packets are the contents of the records of files.
func Packets(t testing.TB, files ...string) [][]byte {
	t.Helper()
	return Contents(Records(t, files...))
}

// Complaints are the lines a reader prints about a file, less those it always
// prints, and its exit status. It may be called from any goroutine.
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

// StandardReaders are the programs users open captures with.
var StandardReaders = map[string][]string{
	"tshark":   {"-n", "-T", "fields", "-e", "frame.number", "-r"},
	"capinfos": {"-M"},
	"tcpdump":  {"-n", "-q", "-r"},
}

// Readable has every standard reader read stopped captures.
func Readable(t *testing.T, files ...string) {
	t.Helper()
	var all sync.WaitGroup
	defer all.Wait()
	for program, args := range StandardReaders {
		path := testenv.Tool(t, program)
		all.Go(func() {
			for _, f := range files {
				if lines, failed := Complaints(path, append(slices.Clone(args), f)...); failed || len(lines) > 0 {
					t.Errorf("%s of %s: failed %v, says %q", program, f, failed, lines)
				}
			}
		})
	}
}

// ExportRing makes a file of the ring on a device.
func ExportRing(t *testing.T, device string) string {
	t.Helper()
	in, err := os.Open(device)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	_ = unix.Fadvise(int(in.Fd()), 0, 0, unix.FADV_DONTNEED) // commands to a node write past the cache
	size, err := in.Seek(0, io.SeekEnd)
	if err != nil {
		t.Fatal(err)
	}
	found, err := ring.Find(in, uint64(size))
	if err != nil {
		t.Fatal(err)
	}
	out, err := os.Create(filepath.Join(t.TempDir(), "export.pcapng"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	x := export.New(out, export.Select{})
	if err := x.AddRing(in, found.Ring); err != nil {
		t.Fatal(err)
	}
	if _, err := x.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Name()
}

// Generations are those of the segments that the ring on a device has heads of.
func Generations(t testing.TB, device string) []uint64 {
	t.Helper()
	in, err := os.Open(device)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	size, err := in.Seek(0, io.SeekEnd)
	if err != nil {
		t.Fatal(err)
	}
	found, err := ring.Find(in, uint64(size))
	if err != nil {
		t.Fatal(err)
	}
	all, err := found.Generations(in)
	if err != nil {
		t.Fatal(err)
	}
	return all
}
