package crash

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sort"
	"testing"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// segments returns the capture files in a directory, oldest first.
func segments(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "cap-*.pcapng"))
	testenv.Must(t, err)
	sort.Strings(files)
	return files
}

// prepared returns the prepared segments in a directory. They have no packets.
func prepared(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, ".cap-*.next"))
	testenv.Must(t, err)
	return files
}

// digits matches the number in a segment's name.
var digits = regexp.MustCompile(`-(\d{6})\.(pcapng|next)$`)

func number(t *testing.T, name string) string {
	t.Helper()
	found := digits.FindStringSubmatch(name)
	if found == nil {
		t.Fatalf("%s has no number", name)
	}
	return found[1]
}

// sequence returns the highest segment number in a directory. It is empty if there are no segments.
func sequence(t *testing.T, dir string) (highest string) {
	t.Helper()
	for _, name := range append(segments(t, dir), prepared(t, dir)...) {
		highest = max(highest, number(t, name))
	}
	return highest
}

// numbers reads the numbers of all packets in the files. The packets must be intact.
func numbers(t *testing.T, files []string) (all []uint64) {
	t.Helper()
	for _, name := range files {
		captured, err := testenv.ReadCapture(t, name)
		testenv.Mustf(t, err, "%s: after %d packets", name, len(captured))
		for _, p := range captured {
			n, ok := testenv.Sequence(p.Data)
			if !ok || !testenv.Intact(p.Data) {
				t.Fatalf("%s: packet %d is not what was sent: %x", name, len(all), p.Data)
			}
			all = append(all, n)
		}
	}
	return all
}

// read reads the files with programs of other projects, which must not complain. tshark starts
// slowly, so it reads all files as one: concatenated captures are a valid capture.
func read(t *testing.T, files []string) {
	t.Helper()
	if len(files) == 0 {
		return
	}
	reader(t, nil, append([]string{"capinfos", "-c", "-M"}, files...)...)
	all := make([]io.Reader, 0, len(files))
	for _, name := range files {
		reader(t, nil, "tcpdump", "-nn", "-r", name, "-w", "/dev/null")
		f, err := os.Open(name)
		testenv.Must(t, err)
		defer f.Close()
		all = append(all, f)
	}
	reader(t, io.MultiReader(all...), "tshark", "-n", "-r", "-", "-w", "/dev/null")
}

// reader runs one program.
func reader(t *testing.T, in io.Reader, args ...string) {
	t.Helper()
	cmd := exec.Command(testenv.Tool(t, args[0]), args[1:]...)
	cmd.Stdin = in
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%q: %v\n%s", args, err, out)
	}
}

// contiguous checks the packets of a run whose numbers begin at first. At least least packets must
// be there, in order. Among those, no more may be missing than the status counted as dropped.
func contiguous(t *testing.T, all []uint64, first, least uint64, s *status.Flow) {
	t.Helper()
	if uint64(len(all)) < least {
		t.Errorf("the files have %d packets, and the status called %d safe", len(all), least)
		return
	}
	for i, n := range all {
		if n < first || i > 0 && n <= all[i-1] {
			t.Fatalf("packet %d has number %d, out of order", i, n-first)
		}
	}
	var dropped uint64
	for _, n := range s.Dropped {
		dropped += n
	}
	if least > 0 && all[least-1]-first-(least-1) > dropped {
		t.Errorf("of the first %d packets %d are missing, and the status counts %d dropped", least, all[least-1]-first-(least-1), dropped)
	}
}
