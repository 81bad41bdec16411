package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// command runs a command line for the daemon.
func (s *served) command(t *testing.T, args ...string) (code int, out, errs string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code = run(append(args, "--socket", s.socket), &stdout, &stderr)
	return code, stdout.String(), stderr.String()
}

// capture returns the configuration that startServed writes, followed by rest. Names whose lengths
// differ from run to run are last in their lines, so that columns stay the same.
func (s *served) capture(t *testing.T, rest string) string {
	t.Helper()
	return fmt.Sprintf(`
region: {size: 64MiB, extents: 8}
flows:
  - name: cap
    from: {ring: 512, interface: %s}
    to: {segment: {size: 16MiB}, flush: 50ms, durable: 100ms, file: %s/cap}
`, s.pair.B.Ifname, filepath.Dir(s.file)) + rest
}

// TestReloadCommand: the reload commands print the expected texts and return the expected exit statuses.
func TestReloadCommand(t *testing.T) {
	s := startServed(t)
	s.start(t)
	other := filepath.Join(filepath.Dir(s.file), "other.yaml")
	testenv.Must(t, os.WriteFile(other, []byte(strings.Replace(s.capture(t, ""), "flush: 50ms", "flush: 60ms", 1)), 0o600))
	added := s.capture(t, "  - {name: new, from: {interface: gone, ring: 64}, to: {file: "+filepath.Dir(s.file)+"/new}}\n")
	for _, c := range []struct {
		text string
		args []string
		code int
		want string // a regular expression for both outputs
	}{
		{s.capture(t, ""), []string{"check", "--plan"}, 0, `^nothing would change\nflow cap: goes on unchanged\n$`},
		{s.capture(t, ""), []string{"reload"}, 0, `^unchanged, generation 1, after \d+\S*s\nflow cap: goes on unchanged\n$`},
		{s.capture(t, ""), []string{"check", "--plan", "-c", other}, 0, `^flow cap: stops and starts again \(to\.flush\)\n$`},
		{s.capture(t, ""), []string{"check", "--plan", "-c", other + ".none"}, exitFailed, `^unifiedd: read configuration: open .*none: no such file or directory\n$`},
		{"log: {level: debug}\n" + s.capture(t, ""), []string{"reload"}, 0, `^applied, generation 2, after \d+\S*s\nflow cap: goes on unchanged\nthe daemon: settings change \(log.level\)\n$`},
		{added, []string{"check", "--plan"}, 0, `^flow cap: goes on unchanged\nflow new: is new, and starts\nthe daemon: settings change \(log.level\)\n$`},
		{added, []string{"reload"}, exitFailed, `^unifiedd: start flow new: open gone: interface is gone, or never was in this network namespace`},
		{strings.Replace(added, "64MiB", "66MiB", 1), []string{"check", "--plan"}, exitFailed, `test\.yaml:2:16: region\.size: cannot change while the daemon runs, with 64MiB\n    region: \{size: 66MiB, extents: 8\}\n                   \^ restart it for this\n$`},
		{"flows: []\nregions: {}\n", []string{"reload"}, exitFailed, `^/\S+/test\.yaml:1:8: flows: at least one is needed\n    flows: \[\]\n           \^\n/\S+/test\.yaml:2:1: unknown key "regions"\n    regions: \{\}\n    \^ did you mean "region"\?\n$`},
	} {
		s.write(t, c.text)
		code, out, errs := s.command(t, c.args...)
		if code != c.code || !regexp.MustCompile(c.want).MatchString(out+errs) {
			t.Errorf("%v ends with %d:\n%s%s", c.args, code, out, errs)
		}
	}
	testenv.Must(t, os.Remove(s.file))
	if code, _, errs := s.command(t, "reload"); code != exitFailed || !strings.Contains(errs, "no such file or directory") {
		t.Errorf("without its file it ends with %d: %s", code, errs)
	}
	_, out, _ := s.command(t, "status", "-o", "wide")
	if !regexp.MustCompile(`(?m)^config +generation 2, loaded \S+; reloads: applied 1, refused 2, rolled_back 1, unchanged 1\n +the last reload was refused at \S+: read configuration: `).MatchString(out) {
		t.Errorf("the status is\n%s", out)
	}
	_, body := s.do(t, "GET", "/metrics")
	for _, want := range []string{
		"unifiedd_config_generation 2", "unifiedd_config_last_reload_successful 0", `unifiedd_config_reloads_total{status="applied"} 1`,
		`unifiedd_config_reloads_total{status="rolled_back"} 1`, `unifiedd_config_reloads_total{status="broken"} 0`,
	} {
		if !strings.Contains(body, want+"\n") {
			t.Errorf("no %s in:\n%s", want, ours(body))
		}
	}
}

func TestPrintReload(t *testing.T) {
	var out bytes.Buffer
	c := status.Config{Generation: 3, Loaded: time.Date(2026, 11, 20, 14, 0, 0, 0, time.UTC), Reloads: map[status.Outcome]uint64{status.Applied: 2, status.Busy: 0}}
	since := c.Loaded.Add(time.Hour)
	c.Since = &since
	printConfig(&out, &c)
	if want := "config\tgeneration 3, loaded 2026-11-20T14:00:00Z; reloads: applied 2\n\ta reload is under way since 2026-11-20T15:00:00Z\n"; out.String() != want {
		t.Errorf("%q, not %q", out.String(), want)
	}
	out.Reset()
	if err := printReload(&out, &status.Reload{Outcome: status.Applied, Generation: 3, Seconds: 0.5, Error: "stop flow a: late"}); err != nil || out.String() != "applied, generation 3, after 500ms\nbut: stop flow a: late\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
}
