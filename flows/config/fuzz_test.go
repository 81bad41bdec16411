package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// FuzzParse: the parser never panics; it returns a complete Config that passes the checks again, or
// problems that are inside the text and safe to print on a terminal.
func FuzzParse(f *testing.F) {
	for _, glob := range []string{"testdata/*.yaml", "testdata/errors/*.yaml"} {
		files, err := filepath.Glob(glob)
		if err != nil || len(files) == 0 {
			f.Fatalf("no seeds in %s: %v", glob, err)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			testenv.Must(f, err)
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		o := Options{CheckFilter: noBang}
		c, err := Parse("fuzz.yaml", data, o)
		if err != nil {
			checkErrors(t, string(data), err)
			checkPrintable(t, err.Error())
			return
		}
		before := *c
		before.Flows = append([]Flow(nil), c.Flows...)
		for i := range before.Flows {
			before.Flows[i].To.Peers = append([]Peer(nil), c.Flows[i].To.Peers...)
			if before.Flows[i].Kind() == "" {
				t.Error("a flow has no kind")
			}
		}
		c.Complete()
		if diff := cmp.Diff(&before, c, byValue); diff != "" {
			t.Errorf("was not complete: %s", diff)
		}
		if err := c.Validate(o); err != nil {
			t.Errorf("is not valid: %v", err)
		}
	})
}

func checkPrintable(t *testing.T, text string) {
	t.Helper()
	bad := func(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) }
	if i := strings.IndexFunc(text, bad); i >= 0 {
		t.Errorf("byte %d of %q is not for a terminal", i, text)
	}
}
