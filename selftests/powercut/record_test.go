package powercut

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// record is the result of a run in the guest.
type record struct {
	*Log
	captures, logs, targets []flow
	base                    []byte // the disk before the run
	claims                  []Claim
	program                 string // the daemon
}

// makeRecord boots a guest that runs each flow for a while, longer with long. The programs for the guest are built
// first: a guest with Linux 7 that has looked for a file and not found it never sees that the host has made it (9p keeps
// negative entries).
func makeRecord(t *testing.T, long bool) *record {
	t.Helper()
	begin := time.Now()
	dir := testenv.DiskDir(t)
	r := &record{program: filepath.Join(dir, "unifiedd")}
	r.captures, r.logs, r.targets = chosen(long)
	disk, log := filepath.Join(dir, "disk"), filepath.Join(dir, "log")
	r.base = makeDisk(t, disk)
	testenv.Must(t, os.WriteFile(log, nil, 0o600))
	build(t, "build", "-o", filepath.Join(dir, "lab"), "../lab")
	build(t, "build", "-o", r.program, "../../cmd/unifiedd")
	build(t, "test", "-vet=off", "-c", "-ldflags=-s -w", "-o", filepath.Join(dir, "drive"), ".")
	built := time.Now()
	out := drive(t, dir, long)
	r.read(t, log, disk)
	t.Logf("%d entries, %d markers; built in %v, recorded in %v\n%s", len(r.Entries), len(r.claims),
		built.Sub(begin).Round(time.Second), time.Since(begin).Round(time.Second), out)
	return r
}

// drive runs the flows in a guest, and returns its output.
func drive(t *testing.T, dir string, long bool) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "lab"), "-kernel", os.Getenv("UNIFIEDD_KERNEL"), "-limit", "8m", "-record", dir,
		"-cmd", filepath.Join(dir, "drive")+" -test.run '^TestDrive$' -test.v")
	cmd.Env = append(os.Environ(), "UNIFIEDD_RECORD="+dir, "UNIFIEDD_SPAN=1500ms", "UNIFIEDD_LONG=")
	if long {
		cmd.Env = append(cmd.Env, "UNIFIEDD_SPAN=8s", "UNIFIEDD_LONG=1")
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("make a record in a guest: %v\n%s", err, out)
	}
	return out
}

// build runs the go command without cgo. The programs in the guest do not need cgo, and linking is
// faster without it.
func build(t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go %q: %v\n%s", args, err, out)
	}
}

// makeDisk makes a disk with partitions and a file system, and returns its content.
func makeDisk(t *testing.T, name string) []byte {
	t.Helper()
	f, err := os.Create(name)
	testenv.Must(t, err)
	defer f.Close()
	testenv.Must(t, f.Truncate(diskBytes))
	fs := parts[0]
	out, err := exec.Command(testenv.Tool(t, "mkfs.ext4"), "-q", "-F", "-J", "size=4", "-E", fmt.Sprintf("offset=%d,lazy_itable_init=0", fs.Offset),
		name, fmt.Sprintf("%dk", fs.Length>>10)).CombinedOutput()
	if err != nil {
		t.Fatalf("make a file system: %v\n%s", err, out)
	}
	if _, err := f.WriteAt(table(), 0); err != nil {
		t.Fatal(err)
	}
	return readAll(t, name)
}

func readAll(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(name)
	testenv.Must(t, err)
	return b
}

// read reads the record. Applied to the disk before the run, it must give the disk after it.
func (r *record) read(t *testing.T, log, disk string) {
	t.Helper()
	l, err := parse(readAll(t, log), diskBytes)
	testenv.Must(t, err)
	r.Log, r.claims = l, l.Claims()
	image := bytes.Clone(r.base)
	for _, e := range l.Entries {
		e.apply(image)
	}
	if !bytes.Equal(image, readAll(t, disk)) {
		t.Fatal("the record does not lead to the disk that the guest left")
	}
	flows := len(r.captures) + len(r.logs) + len(r.targets)
	for n, c := range r.claims {
		if c.Number != uint64(n) || int(c.Flow) >= flows {
			t.Fatalf("marker %d is %+v: some are missing", n, c)
		}
	}
	if len(r.claims) == 0 || int(r.claims[len(r.claims)-1].Flow) != flows-1 {
		t.Fatalf("%d markers, none of the last flow", len(r.claims))
	}
}

// claimed returns the claims before a cut.
func (r *record) claimed(at int) []Claim {
	for n, c := range r.claims {
		if c.Entry >= at {
			return r.claims[:n]
		}
	}
	return r.claims
}

// durableOf returns how many packets of each flow the claims call durable.
func durableOf(claims []Claim) map[uint32]uint64 {
	packets := map[uint32]uint64{}
	for _, c := range claims {
		if c.Client == 0 {
			packets[c.Flow] = c.Packets
		}
	}
	return packets
}

// begun returns the flows whose beginning is among the claims.
func (b *bench) begun(claims []Claim) (some []flow) {
	for _, f := range b.flows {
		if len(of(f, claims)) > 0 {
			some = append(some, f)
		}
	}
	return some
}
