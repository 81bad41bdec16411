package alerts

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/metrics"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// kept is the directory of the files, relative to the tests.
var kept = filepath.Join("..", "..", "..", "..", "..", "packaging", "prometheus")

func files(t *testing.T) map[string][]byte {
	t.Helper()
	all, err := Files()
	testenv.Must(t, err)
	return all
}

// TestFilesAreKept: the files in packaging are those that go generate makes.
func TestFilesAreKept(t *testing.T) {
	for name, want := range files(t) {
		got, err := os.ReadFile(filepath.Join(kept, name))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not what go generate makes: make generate, and commit the result (%v)", name, err)
		}
	}
}

// TestCheckNames: an expression that names a metric or a label that does not exist is refused.
func TestCheckNames(t *testing.T) {
	for expr, ok := range map[string]bool{
		`unifiedd_flow_up == 0`:                              true,
		`rate(unifiedd_dropped_packets_total{flow="a"}[5m])`: true,
		`unifiedd_frame_latency_seconds_bucket{le="1"}`:      true,
		`unifiedd_flow_up_bucket`:                            false,
		`unifiedd_flow_gone == 0`:                            false,
		`unifiedd_flow_up{interface="a"}`:                    false,
		`process_nonsense > 1`:                               false,
		`vector(1)`:                                          false,
		`up == 0`:                                            true,
	} {
		if err := checkNames(metrics.Table(), expr); (err == nil) != ok {
			t.Errorf("%s: %v", expr, err)
		}
	}
}

// promtool returns the path of Prometheus' checker, which scripts/setup.sh demo test unpacks.
func promtool(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("..", "..", "..", "..", "..", "build", "unpacked", "usr", "bin", "promtool"))
	testenv.Must(t, err)
	if _, err := os.Stat(path); err != nil {
		if path, err = exec.LookPath("promtool"); err != nil {
			t.Fatalf("look for promtool: %v (unpack the test programs: scripts/setup.sh demo test)", err)
		}
	}
	return path
}

// TestPromtool: Prometheus accepts the rules. In the long form, each fires in its own case, and none while all is well.
func TestPromtool(t *testing.T) {
	dir := t.TempDir()
	for name, text := range files(t) {
		testenv.Must(t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
	for _, args := range [][]string{{"check", "rules", "--lint-fatal", rulesFile}, {"test", "rules", testsFile}} {
		if args[0] == "test" && testing.Short() { // it evaluates the rules over days
			return
		}
		cmd := exec.Command(promtool(t), args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
	// A rule that would not fire is found: the tests can fail.
	broken := bytes.Replace(files(t)[rulesFile], []byte("unifiedd_flow_up == 0"), []byte("unifiedd_flow_up == 2"), 1)
	testenv.Must(t, os.WriteFile(filepath.Join(dir, rulesFile), broken, 0o600))
	cmd := exec.Command(promtool(t), "test", "rules", testsFile)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err == nil || !bytes.Contains(out, []byte("UnifieddFlowDown")) {
		t.Errorf("promtool accepts a rule that does not fire: %v\n%s", err, out)
	}
}

// TestDashboard: the dashboard is valid, has a panel for each metric, and Prometheus can parse its expressions.
func TestDashboard(t *testing.T) {
	var d struct {
		Panels []struct {
			ID      int
			Title   string
			Type    string
			GridPos struct{ X, Y, W, H int }
			Targets []struct{ Expr string }
		}
	}
	testenv.Must(t, json.Unmarshal(files(t)[dashboardFile], &d))
	titles, used := map[string]bool{}, map[[2]int]string{}
	var rules strings.Builder
	rules.WriteString("groups:\n- name: panels\n  rules:\n")
	for _, p := range d.Panels {
		titles["unifiedd_"+p.Title] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := used[[2]int{x, y}]; other != "" {
					t.Fatalf("the panels %s and %s overlap", other, p.Title)
				}
				used[[2]int{x, y}] = p.Title
			}
		}
		for i, target := range p.Targets {
			expr := strings.ReplaceAll(target.Expr, "$__rate_interval", "5m")
			fmt.Fprintf(&rules, "  - record: panel:%d:%s\n    expr: %q\n", p.ID, string(rune('a'+i)), expr)
		}
	}
	for _, m := range metrics.Table() {
		if !titles[m.Name] {
			t.Errorf("there is no panel for %s", m.Name)
		}
		if m.Help == "" || subjectOf(m) == "" {
			t.Errorf("%s has no help or no row", m.Name)
		}
	}
	text := regexp.MustCompile(`panel:(\d+):`).ReplaceAllString(rules.String(), "panel:p$1:")
	file := filepath.Join(t.TempDir(), "panels.yml")
	testenv.Must(t, os.WriteFile(file, []byte(text), 0o600))
	if out, err := exec.Command(promtool(t), "check", "rules", file).CombinedOutput(); err != nil {
		t.Errorf("promtool: %v\n%s", err, out)
	}
}

// TestAnnotations: the texts of an alert name labels that it has.
func TestAnnotations(t *testing.T) {
	for _, r := range rules {
		for _, text := range r.annotations(func(label string) string {
			if _, ok := r.labels[label]; !ok {
				t.Errorf("%s has no label %s", r.name, label)
			}
			return label
		}) {
			if strings.Contains(text, "$") || len(text) > 220 {
				t.Errorf("%s says %q", r.name, text)
			}
		}
		if !strings.HasPrefix(r.name, "Unifiedd") || len(r.fires) == 0 {
			t.Errorf("%+v", r)
		}
	}
}
