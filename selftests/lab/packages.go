package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// fileSuffix ends the name of a file with tests for the lab. Each calls labenv.Guest first, which skips it elsewhere.
// The build tags are those of scripts/test.sh, so that both use one build.
const (
	fileSuffix = "_lab_test.go"
	buildTags  = "invariants,verbs"
)

// module is the prefix of import paths.
const module = "github.com/unifiedd/unifiedd"

// suite has the lab's tests of a package.
type suite struct {
	ImportPath                string
	Dir                       string
	TestGoFiles, XTestGoFiles []string

	tests    []string
	inside   string   // an expression for the tests in those, or none
	programs []string // packages of programs that the tests run
	binary   string
}

// findSuites returns the packages that match the patterns and have tests for the lab.
func findSuites(ctx context.Context, patterns []string) ([]suite, error) {
	if len(patterns) == 0 {
		patterns = []string{"./..."}
	}
	args := []string{"list", "-tags", buildTags, "-json=ImportPath,Dir,TestGoFiles,XTestGoFiles"}
	out, err := goTool(ctx, append(args, patterns...)...)
	if err != nil {
		return nil, fmt.Errorf("list the packages: %w", err)
	}
	var all []suite
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var s suite
		if err := dec.Decode(&s); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("read the list of packages: %w", err)
		}
		if err := s.findTests(); err != nil {
			return nil, err
		}
		if len(s.tests) > 0 {
			all = append(all, s)
		}
	}
}

// The second expression matches a line in a file with tests for the lab. The line names a program
// that the tests run: a package from the module's root.
var (
	testFunction = regexp.MustCompile(`(?m)^func (Test\w+)\(\w+ \*testing\.T\)`)
	testProgram  = regexp.MustCompile(`(?m)^//lab:program (\S+)$`)
)

// findTests finds the names of the tests in the files for the lab, and of the programs that they
// run.
func (s *suite) findTests() error {
	for _, name := range slices.Concat(s.TestGoFiles, s.XTestGoFiles) {
		if !strings.HasSuffix(name, fileSuffix) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(s.Dir, name))
		if err != nil {
			return fmt.Errorf("look for tests: %w", err)
		}
		for _, m := range testFunction.FindAllSubmatch(text, -1) {
			s.tests = append(s.tests, string(m[1]))
		}
		for _, m := range testProgram.FindAllSubmatch(text, -1) {
			s.programs = append(s.programs, string(m[1]))
		}
	}
	return nil
}

// build compiles the test program of the package into dir, and the programs that it runs.
func (s *suite) build(ctx context.Context, dir string) error {
	s.binary = filepath.Join(dir, strings.ReplaceAll(s.ImportPath, "/", "-")+".test")
	if _, err := goTool(ctx, "test", "-c", "-tags", buildTags, "-o", s.binary, s.ImportPath); err != nil {
		return fmt.Errorf("build the tests of %s: %w", s.ImportPath, err)
	}
	for _, program := range s.programs {
		if _, err := goTool(ctx, "build", "-tags", buildTags, "-o", filepath.Join(dir, filepath.Base(program)), module+"/"+program); err != nil {
			return fmt.Errorf("build %s for the tests of %s: %w", program, s.ImportPath, err)
		}
	}
	return nil
}

// pattern returns an expression that matches exactly the tests of the lab.
func (s *suite) pattern() string {
	all := "^(" + strings.Join(s.tests, "|") + ")$"
	if s.inside != "" {
		all += "/" + s.inside
	}
	return all
}

// keep keeps the tests whose names match. inside selects subtests in the same way.
func (s *suite) keep(match *regexp.Regexp, inside string) {
	s.inside = inside
	s.tests = slices.DeleteFunc(s.tests, func(name string) bool { return !match.MatchString(name) })
}

func goTool(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s: %w\n%s%s", args[0], err, stderr.Bytes(), out)
	}
	return out, nil
}
