package alarms

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/selftests/daemon"
)

// root is the root of the checkout, relative to the tests.
var root = filepath.Join("..", "..")

// Prometheus as it is set up by default: how often it reads metrics and evaluates rules.
const interval = 15 * time.Second

// server is a Prometheus that reads the metrics of daemons in a namespace.
type server struct {
	t      *testing.T
	dir    string
	client *http.Client
	log    *daemon.Log
}

// servedAt is where Prometheus answers, in its namespace.
const servedAt = "127.0.0.1:9090"

// newServer starts Prometheus in a namespace. The spans of the rules, and the intervals, are divided by speed.
// targets are those of [target]. They need not exist yet: Prometheus takes seconds to notice new ones.
func newServer(t *testing.T, at *testenv.Namespace, speed int, targets []string) *server {
	t.Helper()
	s := &server{t: t, dir: t.TempDir(), log: new(daemon.Log)}
	s.client = &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DialContext: func(context.Context, string, string) (c net.Conn, err error) {
			at.Do(t, func() { c, err = net.DialTimeout("tcp", servedAt, 5*time.Second) })
			return c, err
		},
	}}
	rules, err := os.ReadFile(filepath.Join(root, "packaging", "prometheus", "unifiedd.rules.yml"))
	testenv.Must(t, err)
	every := (interval / time.Duration(speed)).Milliseconds()
	s.write("rules.yml", faster(t, string(rules), speed))
	s.write("prometheus.yml", fmt.Sprintf(`
global: {scrape_interval: %[1]dms, scrape_timeout: %[1]dms, evaluation_interval: %[1]dms}
rule_files: [rules.yml]
scrape_configs:
  - job_name: unifiedd
    static_configs: [%s]
`, every, strings.Join(targets, ", ")))
	cmd := at.Command(prometheus(t), "--config.file", filepath.Join(s.dir, "prometheus.yml"), "--storage.tsdb.path", filepath.Join(s.dir, "data"),
		"--web.listen-address", servedAt, "--log.level", "warn")
	cmd.Stdout, cmd.Stderr = s.log, s.log
	testenv.Must(t, cmd.Start())
	t.Cleanup(func() {
		s.client.CloseIdleConnections()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("Prometheus' log:\n%s", s.log)
		}
	})
	testenv.Wait(t, 60*time.Second, "Prometheus to be ready", func() bool {
		answer, err := s.client.Get("http://" + servedAt + "/-/ready")
		if err != nil {
			return false
		}
		answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	})
	return s
}

// prometheus returns the path of the server, which scripts/setup.sh demo test unpacks.
func prometheus(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(root, "build", "unpacked", "usr", "bin", "prometheus"))
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		if path, err = exec.LookPath("prometheus"); err != nil {
			t.Fatalf("look for prometheus: %v (unpack the test programs: scripts/setup.sh demo test)", err)
		}
	}
	return path
}

var (
	forSpan   = regexp.MustCompile(`(?m)^(\s+for: )(\d+)s$`)
	rangeSpan = regexp.MustCompile(`\[(\d+)([mhd])\]`)
)

// absences is the one expression with a rate of events as its limit. In a shorter span a single event is a higher
// rate, so that the limit grows with the speed.
const absences = "rate(unifiedd_worker_absences_total[5m]) > 0.1"

// faster returns rules with all spans divided by speed.
func faster(t *testing.T, rules string, speed int) string {
	t.Helper()
	if speed == 1 {
		return rules
	}
	if strings.Count(rules, absences) != 1 {
		t.Fatalf("the rules do not have %s", absences)
	}
	rules = strings.Replace(rules, absences, "rate(unifiedd_worker_absences_total[5m]) > "+strconv.FormatFloat(0.05*float64(speed), 'g', -1, 64), 1)
	millis := func(digits string, unit time.Duration) string {
		n, err := strconv.Atoi(digits)
		testenv.Must(t, err)
		return fmt.Sprintf("%dms", (time.Duration(n) * unit / time.Duration(speed)).Milliseconds())
	}
	rules = forSpan.ReplaceAllStringFunc(rules, func(span string) string {
		m := forSpan.FindStringSubmatch(span)
		return m[1] + millis(m[2], time.Second)
	})
	return rangeSpan.ReplaceAllStringFunc(rules, func(span string) string {
		m := rangeSpan.FindStringSubmatch(span)
		return "[" + millis(m[1], map[string]time.Duration{"m": time.Minute, "h": time.Hour, "d": 24 * time.Hour}[m[2]]) + "]"
	})
}

func (s *server) write(name, text string) {
	s.t.Helper()
	file := filepath.Join(s.dir, name)
	testenv.Must(s.t, os.WriteFile(file+".new", []byte(text), 0o600))
	testenv.Must(s.t, os.Rename(file+".new", file))
}

// target is what Prometheus needs to read the metrics of an instance.
func target(instance, address string) string {
	return fmt.Sprintf("{targets: [%q], labels: {instance: %q}}", address, instance)
}

// await waits until Prometheus reads the metrics of an instance, and has no alert any more that it did not.
func (s *server) await(instance string) {
	s.t.Helper()
	testenv.Wait(s.t, 60*time.Second, "Prometheus to read the metrics of "+instance, func() bool {
		return s.value(fmt.Sprintf("up{instance=%q}", instance)) == "1" && s.firing(instance)["UnifieddDown"].State == ""
	})
}

// get asks the API, and decodes the data of its answer.
func (s *server) get(path string, data any) {
	s.t.Helper()
	answer, err := s.client.Get("http://" + servedAt + "/api/v1/" + path)
	if err != nil {
		s.t.Fatalf("ask Prometheus: %v\n%s", err, s.log)
	}
	defer answer.Body.Close()
	var d struct {
		Status string
		Data   json.RawMessage
	}
	if err := json.NewDecoder(answer.Body).Decode(&d); err != nil || d.Status != "success" {
		s.t.Fatalf("ask Prometheus for %s: %s, %v", path, d.Status, err)
	}
	if err := json.Unmarshal(d.Data, data); err != nil {
		s.t.Fatalf("ask Prometheus for %s: %v", path, err)
	}
}

// value returns the value of an expression with one series; empty: there is none.
func (s *server) value(expr string) string {
	s.t.Helper()
	var d struct {
		Result []struct{ Value [2]any }
	}
	s.get("query?query="+url.QueryEscape(expr), &d)
	if len(d.Result) != 1 {
		return ""
	}
	return fmt.Sprint(d.Result[0].Value[1])
}

// alert is an alert that fires.
type alert struct {
	Labels      map[string]string
	Annotations map[string]string
	State       string
}

func (a alert) String() string {
	return a.Labels["alertname"] + ": " + a.Annotations["summary"]
}

// firing returns the alerts of an instance that fire, by name.
func (s *server) firing(instance string) map[string]alert {
	s.t.Helper()
	var d struct{ Alerts []alert }
	s.get("alerts", &d)
	all := map[string]alert{}
	for _, a := range d.Alerts {
		if a.State == "firing" && a.Labels["instance"] == instance {
			all[a.Labels["alertname"]] = a
		}
	}
	return all
}
