package seccomp

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// settings returns the values of a key in the systemd unit.
func settings(t *testing.T, key string) (words []string) {
	t.Helper()
	text, err := os.ReadFile("../../packaging/unifiedd.service")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), key+"="); ok {
			words = append(words, strings.Fields(value)...)
		}
	}
	slices.Sort(words)
	return words
}

// TestUnit: the systemd unit permits the same calls and address families as the list.
func TestUnit(t *testing.T) {
	if got := settings(t, "SystemCallFilter"); !slices.Equal(got, calls()) {
		t.Errorf("SystemCallFilter differs from the list; it must be, on as many lines as you like:\n%s", strings.Join(calls(), " "))
	}
	var families []string
	for _, f := range Families {
		families = append(families, f.Name)
	}
	slices.Sort(families)
	if got := settings(t, "RestrictAddressFamilies"); !slices.Equal(got, families) {
		t.Errorf("RestrictAddressFamilies is %v, want %v", got, families)
	}
}

// TestProfile: the profile for containers is that of the list.
func TestProfile(t *testing.T) {
	want, err := Profile()
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../packaging/seccomp.json")
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("packaging/seccomp.json is not what the list gives: make generate, and commit the result (%v)", err)
	}
}

// TestUnitExposure: systemd's exposure rating of the unit is the one in SECURITY.md.
func TestUnitExposure(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Fatalf("%v (install the test programs: scripts/setup.sh demo test)", err)
	}
	unit, err := os.ReadFile("../../packaging/unifiedd.service")
	if err != nil {
		t.Fatal(err)
	}
	installed := filepath.Join(t.TempDir(), "unifiedd.service")
	if err := os.WriteFile(installed, bytes.ReplaceAll(unit, []byte("@PREFIX@"), []byte("/usr")), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(analyze, "security", "--no-pager", "--offline=true", installed).CombinedOutput()
	figure := regexp.MustCompile(`Overall exposure level for unifiedd.service: (\S+)`).FindSubmatch(out)
	if figure == nil {
		t.Fatalf("%s says no figure: %v\n%s", analyze, err, out)
	}
	security, err := os.ReadFile("../../SECURITY.md")
	if err != nil {
		t.Fatal(err)
	}
	if want := "says " + string(figure[1]) + " of the unit"; !bytes.Contains(security, []byte(want)) {
		t.Errorf("SECURITY.md does not say %q\n%s", want, out)
	}
}
