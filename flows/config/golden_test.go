package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/unifiedd/unifiedd/internal/golden"
	"github.com/unifiedd/unifiedd/internal/linktype"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// filterError is an error of a filter, as Options.CheckFilter describes it.
type filterError struct {
	offset int
}

func (e *filterError) Error() string { return `unexpected "!"` }
func (e *filterError) Offset() int   { return e.offset }

// noBang is a filter language that accepts everything except "!".
func noBang(expr string, _ linktype.Type) error {
	if i := strings.Index(expr, "!"); i >= 0 {
		return &filterError{offset: i}
	}
	return nil
}

// TestErrors: every error message is exactly as expected: testdata/errors/x.yaml gives x.txt.
func TestErrors(t *testing.T) {
	files, err := filepath.Glob("testdata/errors/*.yaml")
	if err != nil || len(files) < 15 {
		t.Fatalf("found %d files: %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			testenv.Must(t, err)
			c, err := Parse(filepath.Base(file), data, Options{CheckFilter: noBang, CheckObject: noBad})
			if c != nil {
				t.Error("there is a Config beside the error")
			}
			checkErrors(t, string(data), err)
			golden.Compare(t, strings.TrimSuffix(file, ".yaml")+".txt", err.Error()+"\n")
		})
	}
}

// noBad refuses an object by the name of its file.
func noBad(file, _ string) (string, error) {
	if file == "/bad.o" {
		return "", errors.New("is bad")
	}
	return "", nil
}

// checkErrors checks properties of every error: it is an Errors, its problems are in order, and
// each problem is inside the text.
func checkErrors(t *testing.T, text string, err error) {
	t.Helper()
	var all *Errors
	if !errors.As(err, &all) || len(all.Problems) == 0 {
		t.Fatalf("got %v, not a list of problems", err)
	}
	lines := splitLines(text)
	widths := make([]int, len(lines))
	for i, line := range lines {
		widths[i] = utf8.RuneCountInString(line)
	}
	last := Problem{}
	for _, p := range all.Problems {
		if p.Line < 1 || p.Line > len(lines) {
			t.Fatalf("line %d of %d: %s", p.Line, len(lines), p.Message)
		}
		line := lines[p.Line-1]
		if n := widths[p.Line-1]; p.Column < 1 || p.Column > n+1 {
			t.Fatalf("column %d of %d: %s", p.Column, n, p.Message)
		}
		if p.Source != line {
			t.Fatalf("line %d is %q, not %q", p.Line, line, p.Source)
		}
		if p.Line < last.Line || p.Line == last.Line && p.Column < last.Column {
			t.Fatalf("%s comes after %s", p.Pos(), last.Pos())
		}
		last = p
	}
}

// splitLines splits at the line breaks of YAML 1.1.
func splitLines(text string) []string {
	text = strings.TrimPrefix(text, "\ufeff")
	text = text[:min(len(text), MaxFile)]
	text = strings.NewReplacer("\r\n", "\n", "\r", "\n", "\u0085", "\n", "\u2028", "\n", "\u2029", "\n").Replace(text)
	return strings.Split(text, "\n")
}
