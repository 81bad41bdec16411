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

// segments are the capture files in a directory, oldest first.
func segments(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "cap-*.pcapng"))
	if err != nil {
		t.Fatal(err)
	}
	sort.Strings(files)
	return files
}

// prepared are the segments in a directory that no packet has reached.
func prepared(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, ".cap-*.next"))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// digits is the number in a segment's name.
var digits = regexp.MustCompile(`-(\d{6})\.(pcapng|next)$`)

func number(t *testing.T, name string) string {
	t.Helper()
	found := digits.FindStringSubmatch(name)
	if found == nil {
		t.Fatalf("%s has no number", name)
	}
	return found[1]
}

// sequence is the highest number of a segment in a directory; empty: none is there.
func sequence(t *testing.T, dir string) (highest string) {
	t.Helper()
	for _, name := range append(segments(t, dir), prepared(t, dir)...) {
		highest = max(highest, number(t, name))
	}
	return highest
}

// numbers reads the numbers of all packets in the files, which must be whole.
func numbers(t *testing.T, files []string) (all []uint64) {
	t.Helper()
	for _, name := range files {
		captured, err := testenv.ReadCapture(t, name)
		if err != nil {
			t.Fatalf("%s: after %d packets: %v", name, len(captured), err)
		}
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

// read has readers nobody here wrote read the files; none may complain. tshark, which takes
// a while to start, reads them all as one: captures one behind the other are a capture.
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
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		all = append(all, f)
	}
	reader(t, io.MultiReader(all...), "tshark", "-n", "-r", "-", "-w", "/dev/null")
}

// reader runs one of them.
func reader(t *testing.T, in io.Reader, args ...string) {
	t.Helper()
	cmd := exec.Command(testenv.Tool(t, args[0]), args[1:]...)
	cmd.Stdin = in
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%q: %v\n%s", args, err, out)
	}
}

// contiguous checks the packets of a run whose packets were numbered from first:
// no fewer than least of them, in order, and none missing among those but what the
// status counted as dropped.
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
