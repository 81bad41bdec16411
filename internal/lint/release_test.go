package lint

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestReleaseRefuses: make release goes on if each long suite has passed on this tree, and names those that have not. Writing
// down that a suite has passed is no change of what it covers.
func TestReleaseRefuses(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) {
		t.Helper()
		testenv.Must(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755), os.WriteFile(filepath.Join(dir, name), []byte(text), mode))
	}
	run := func(args ...string) (string, error) {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		return strings.TrimSpace(string(out)), err
	}
	commit := func() string {
		t.Helper()
		for _, args := range [][]string{{"add", "."}, {"-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-q", "--allow-empty", "-m", "x"}} {
			if out, err := run(append([]string{"git"}, args...)...); err != nil {
				t.Fatalf("git %v: %v: %s", args, err, out)
			}
		}
		at, err := run("git", "rev-parse", "HEAD")
		testenv.Must(t, err)
		return at
	}
	for _, name := range []string{"long.sh", "tags.sh"} {
		text, err := os.ReadFile(filepath.Join("../../scripts", name))
		testenv.Must(t, err)
		write("scripts/"+name, string(text), 0o755)
	}
	write("scripts/long.txt", "whole | 20 | . | all of it | true\npart | 3 | a b | a part | true\n", 0o644)
	write("scripts/long-passed.txt", "", 0o644)
	write("a", "", 0o644)
	write(".gitignore", "build\n", 0o644)
	_, err := run("git", "init", "-q")
	testenv.Must(t, err)
	first := commit()
	for _, test := range []struct {
		passed, change string
		fails          bool
		says           []string
	}{
		{"", "", true, []string{"whole: has not passed", "2 of 2 long suites", "about 23 minutes:\n  whole part\n"}},
		{"part " + first + " today\nwhole " + first + " today\n", "", false, []string{"whole " + first + " today"}},
		{"part " + first + " today\nwhole " + first + " today\n", "c", true, []string{"part " + first + " today\n", "today; files that have changed in its paths: 1", "1 of 2 long suites", "about 20 minutes:\n  whole\n"}},
		{"part 0123456789ab today\nwhole " + first + " today\n", "", true, []string{"this clone does not have that commit"}},
	} {
		write("scripts/long-passed.txt", test.passed, 0o644)
		if test.change != "" {
			write(test.change, "x", 0o644)
		}
		commit()
		said, err := run("scripts/long.sh", "--release")
		if (err != nil) != test.fails {
			t.Errorf("after %q: %v: %s", test.passed, err, said)
		}
		for _, want := range test.says {
			if !strings.Contains(said+"\n", want) {
				t.Errorf("after %q it does not say %q:\n%s", test.passed, want, said)
			}
		}
	}
}
