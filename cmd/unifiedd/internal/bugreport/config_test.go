package bugreport

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v4"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestPermitted: a report has all settings that there are, and none is replaced. A new setting fails
// here until somebody has decided whether its value is secret.
func TestPermitted(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "flows", "config", "testdata", "full.yaml"))
	testenv.Must(t, err)
	c, err := readable(text)
	testenv.Must(t, err)
	login := []byte(`send: [{text: hello}, {hex: "00"}]`) // it has a password
	if text = bytes.Replace(text, login, []byte("send: [{text: '[secret]'}, {hex: '[secret]'}]"), 1); bytes.Contains(text, login) || !slices.Equal(c.masked, []string{"hello", "00"}) {
		t.Errorf("replaced are %q", c.masked)
	}
	var before, after any
	testenv.Must(t, yaml.Unmarshal(text, &before))
	testenv.Must(t, yaml.Unmarshal(c.text, &after))
	if d := cmp.Diff(before, after); d != "" {
		t.Errorf("add the setting to permitted in config.go, if its value is not secret:\n%s", d)
	}
	if bytes.IndexByte(c.text, '#') >= 0 {
		t.Errorf("comments are left:\n%s", c.text)
	}
	if want := []string{"/etc/unifiedd/etcd/key.pem", "/etc/unifiedd/hosts.keys", "/etc/unifiedd/tls/key.pem"}; !slices.Equal(slices.Compact(slices.Sorted(slices.Values(c.keyFiles))), want) {
		t.Errorf("files with keys are %q, want %q", c.keyFiles, want)
	}
}

// TestReadable: values of other keys are replaced, wherever they are, and what is no YAML is not shown.
func TestReadable(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"user: unifiedd # of the password hunter2hunter2\n", "user: unifiedd\n"},
		{"passwort: hunter2hunter2\n", "passwort: '[secret]'\n"},
		{"tls: {kee: hunter2hunter2}\n", "tls: {kee: '[secret]'}\n"},
		{"tls: {hunter2hunter2: x}\n", "tls: {'[secret]': '[secret]'}\n"},
		{"x: [hunter2hunter2, {y: hunter2hunter2}]\n", "x: ['[secret]', {y: '[secret]'}]\n"},
		{"tls: hunter2hunter2\n", "tls: '[secret]'\n"},
		{"region: {size: {x: hunter2hunter2}}\n", "region: {size: {x: '[secret]'}}\n"},
		{"x: &a hunter2hunter2\nuser: *a\n", "x: &a '[secret]'\nuser: *a\n"},
		{"x: |\n  hunter2hunter2\n", "x: '[secret]'\n"},
	} {
		got, err := readable([]byte(c.text))
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		var a, b any
		if yaml.Unmarshal(got.text, &a) != nil || yaml.Unmarshal([]byte(c.want), &b) != nil || !cmp.Equal(a, b) {
			t.Errorf("%s\nbecomes %s\nwant    %s", c.text, got.text, c.want)
		}
		if strings.Contains(string(got.text), "hunter2") {
			t.Errorf("%s is left in %s", c.text, got.text)
		}
	}
	if c, err := readable([]byte("a: [hunter2hunter2\n")); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("no YAML: %+v, %v", c, err)
	}
}

// FuzzReadable: no text makes readable fail other than with an error, and what it replaces is not in what it returns.
func FuzzReadable(f *testing.F) {
	f.Add([]byte("user: a\nflows:\n  - {name: x, to: {file: /a, kee: zzzzsecretzzzz}}\n"))
	f.Add([]byte("a: &a [*a]\n"))
	f.Add([]byte("? [a, b]\n: c\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := readable(text)
		if err != nil {
			return
		}
		for _, value := range c.masked {
			if len(value) > 12 && strings.Contains(string(c.text), value) && !strings.Contains(mark, value) && bytes.Count(text, []byte(value)) == 1 {
				t.Errorf("%q is left in %s", value, c.text)
			}
		}
	})
}
