//go:build verbs && cgo

package doctor

import (
	"bytes"
	"debug/elf"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestWithoutLibrary: a program with RDMA, and one without cgo and RDMA, both start in a root
// directory that has only a C library, and the doctor reports the missing library.
func TestWithoutLibrary(t *testing.T) {
	testenv.Root(t)
	for _, c := range []struct{ name, cgo, want, remedy string }{
		{"verbs", "1", "libibverbs.so.1: cannot open shared object file", "apt-get install libibverbs1 ibverbs-providers"},
		{"without cgo", "0", "by this build", "apt-get install libibverbs-dev"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			program := filepath.Join(root, "unifiedd")
			build(t, program, c.cgo)
			copyLibraries(t, root, program)
			checks := examinedIn(t, root)
			expect(t, c.name, of(t, checks, "RDMA", "libibverbs"), OK, c.want)
			expect(t, c.name, of(t, checks, "RDMA", "libibverbs"), OK, c.remedy)
		})
	}
}

// build builds the program with the tag, and checks that it links no RDMA library: the program
// opens those when it needs them.
func build(t *testing.T, program, cgo string) {
	t.Helper()
	cmd := exec.Command("go", "build", "-tags", "verbs", "-ldflags=-s -w", "-o", program, "github.com/unifiedd/unifiedd/cmd/unifiedd")
	cmd.Env = append(os.Environ(), "CGO_ENABLED="+cgo)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build with CGO_ENABLED=%s: %v\n%s", cgo, err, out)
	}
	f, err := elf.Open(program)
	testenv.Must(t, err)
	defer f.Close()
	libraries, err := f.ImportedLibraries()
	if err != nil || strings.Contains(strings.Join(libraries, " "), "verbs") || cgo == "0" && len(libraries) > 0 {
		t.Errorf("with CGO_ENABLED=%s the program is linked with %q (%v)", cgo, libraries, err)
	}
}

var libraryPath = regexp.MustCompile(`(/\S+) \(0x`)

// copyLibraries copies the libraries that a program links into a root directory.
func copyLibraries(t *testing.T, root, program string) {
	t.Helper()
	out, _ := exec.Command(testenv.Tool(t, "ldd"), program).Output() // ldd fails for a program without libraries
	for _, m := range libraryPath.FindAllStringSubmatch(string(out), -1) {
		text, err := os.ReadFile(m[1])
		to := filepath.Join(root, m[1])
		if err == nil {
			err = os.MkdirAll(filepath.Dir(to), 0o755)
		}
		if err == nil {
			err = os.WriteFile(to, text, 0o755)
		}
		testenv.Must(t, err)
	}
}

// examinedIn returns the doctor's report in a root directory.
func examinedIn(t *testing.T, root string) *Report {
	t.Helper()
	cmd := &exec.Cmd{Path: "/unifiedd", Args: []string{"unifiedd", "doctor", "--json", "-i", "lo"}, Dir: "/", SysProcAttr: &syscall.SysProcAttr{Chroot: root}}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil && out.Len() == 0 {
		t.Fatalf("the program does not start: %v\n%s", err, &errs)
	}
	r := new(Report)
	if err := json.Unmarshal(out.Bytes(), r); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	return r
}
