package seccomp

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// settings reads what the systemd unit says under a key.
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

// TestUnit: the systemd unit allows the calls and the address families of the list.
func TestUnit(t *testing.T) {
	if got := settings(t, "SystemCallFilter"); !slices.Equal(got, Calls()) {
		t.Errorf("SystemCallFilter differs from the list; it must be, on as many lines as you like:\n%s", strings.Join(Calls(), " "))
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
