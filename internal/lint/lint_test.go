package lint

import (
	"slices"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

func listAll(t *testing.T, patterns ...string) []pkg {
	t.Helper()
	all, err := list(patterns...)
	testenv.Must(t, err)
	if len(all) == 0 {
		t.Fatalf("no packages match %v", patterns)
	}
	return all
}

func TestImportsPointDown(t *testing.T) {
	for _, p := range listAll(t, "./...") {
		for _, bad := range badImports(p) {
			t.Error(bad)
		}
	}
}

func TestProgramsLinkNoTestCode(t *testing.T) {
	for _, p := range listAll(t, "./cmd/...", "./selftests/...") {
		for _, dep := range testOnly {
			if p.Name == "main" && slices.Contains(p.Deps, dep) {
				t.Errorf("%s links %s, which only tests may", p.ImportPath, dep)
			}
		}
	}
}

func TestSource(t *testing.T) {
	for _, p := range listAll(t, "./...") {
		for _, file := range p.files() {
			bad, err := badSource(file)
			testenv.Check(t, err)
			for _, b := range bad {
				t.Error(b)
			}
		}
	}
}
