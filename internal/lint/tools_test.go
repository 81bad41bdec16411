package lint

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// root is the root of the module, relative to the tests.
var root = filepath.Join("..", "..")

// run runs a program in dir to its end, with additional environment variables, and returns its
// output. If the program fails, the test fails.
func run(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(testenv.Tool(t, name), args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%s %s: %v\n%s", name, strings.Join(args[:min(len(args), 4)], " "), err, out)
	}
	return string(out)
}

func TestGofmt(t *testing.T) {
	var dirs []string
	for _, p := range listAll(t, "./...") {
		dirs = append(dirs, p.files()...)
	}
	if out := run(t, root, nil, "gofmt", append([]string{"-l"}, dirs...)...); out != "" {
		t.Errorf("not formatted (gofmt -w mends it):\n%s", out)
	}
}

// TestVet: vet finds no fault, in the build that all tests use.
func TestVet(t *testing.T) { run(t, root, nil, "go", "vet", "./...") }

// TestStaticcheck: staticcheck finds no fault. Half of its work is garbage collection, so it may collect later if there
// is memory.
func TestStaticcheck(t *testing.T) {
	run(t, root, []string{"GOGC=400", "GOMEMLIMIT=3GiB"}, "go", "tool", "staticcheck", "./...")
}

// TestWithoutVerbs: vet finds no fault in another build: another architecture, the files that replace RDMA where its
// libraries are missing, and those for releases.
func TestWithoutVerbs(t *testing.T) {
	testenv.Long(t, "it builds the whole tree again")
	env := []string{"GOARCH=arm64", "CGO_ENABLED=0", "GOFLAGS=-trimpath -tags=manual"}
	run(t, root, env, "go", "build", "./...")
	run(t, root, env, "go", "vet", "./...")
}

// generated matches the files that go generate makes in bpf.
var generated = []string{"*_bpfe[bl].o", "*_bpfe[bl].go", "testdata/*.o"}

// TestGenerated: generating the files again in a copy of the module gives the committed files.
func TestGenerated(t *testing.T) {
	copied := t.TempDir()
	for _, path := range []string{"go.mod", "go.sum", "bpf"} {
		testenv.Must(t, copyTree(filepath.Join(copied, path), filepath.Join(root, path)))
	}
	for _, pattern := range generated {
		removeAll(t, filepath.Join(copied, "bpf", pattern))
	}
	run(t, copied, nil, "go", "generate", "./...")
	for _, pattern := range generated {
		kept, _ := filepath.Glob(filepath.Join(root, "bpf", pattern))
		for _, path := range kept {
			compare(t, path, filepath.Join(copied, "bpf", filepath.Dir(pattern), filepath.Base(path)))
		}
	}
}

// compare fails the test if a generated file of the tree differs from the new one.
func compare(t *testing.T, kept, made string) {
	t.Helper()
	a, err1 := os.ReadFile(kept)
	b, err2 := os.ReadFile(made)
	if err1 != nil || err2 != nil || !bytes.Equal(a, b) {
		t.Errorf("%s is not what its source gives with this clang: make generate, and commit the result", kept)
	}
}

// removeAll removes the files that match and fails the test if there are none.
func removeAll(t *testing.T, pattern string) {
	t.Helper()
	names, _ := filepath.Glob(pattern)
	if len(names) == 0 {
		t.Errorf("no generated files match %s", filepath.Base(pattern))
	}
	for _, name := range names {
		testenv.Must(t, os.Remove(name))
	}
}

func copyTree(dst, src string) error {
	info, err := os.Stat(src)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return os.CopyFS(dst, os.DirFS(src))
	}
	text, err := os.ReadFile(src)
	if err != nil {
		return err
	}
	return os.WriteFile(dst, text, 0o600)
}

func TestExampleConfigurationIsValid(t *testing.T) {
	run(t, root, nil, "go", "run", "./cmd/unifiedd", "check", "-c", "packaging/unifiedd.yaml")
}

func TestShellScriptsParse(t *testing.T) {
	scripts, err := filepath.Glob(filepath.Join(root, "*", "*.sh"))
	if err != nil || len(scripts) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, script := range append(scripts, filepath.Join(root, ".ci", "run")) {
		run(t, ".", nil, "bash", "-n", script)
		text, _ := os.ReadFile(script)
		if !bytes.Contains(text, []byte("\nset -euo pipefail\n")) {
			t.Errorf("%s lacks set -euo pipefail", script)
		}
	}
}
