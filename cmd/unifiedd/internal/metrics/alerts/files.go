package alerts

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/metrics"
)

// Names of the files.
const (
	rulesFile     = "unifiedd.rules.yml"
	testsFile     = "unifiedd.tests.yml"
	dashboardFile = "unifiedd.dashboard.json"
)

const heading = "# Made by go generate from cmd/unifiedd/internal/metrics/alerts: change that, and make generate.\n"

// Files returns the contents of the files by name: the rules, tests of them for promtool, and the dashboard.
// It is an error if an expression names a metric or a label that does not exist.
func Files() (map[string][]byte, error) {
	board, expressions, err := dashboard(metrics.Table())
	if err != nil {
		return nil, err
	}
	for _, r := range rules {
		expressions = append(expressions, r.expr)
	}
	var errs []error
	for _, e := range expressions {
		errs = append(errs, checkNames(metrics.Table(), e))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	ruleText, errRules := asYAML(ruleDocument())
	testText, errTests := asYAML(testDocument())
	return map[string][]byte{rulesFile: ruleText, testsFile: testText, dashboardFile: board}, errors.Join(errRules, errTests)
}

// foreign are metrics of the process and of Prometheus itself.
var foreign = []string{"up", "process_start_time_seconds", "process_open_fds", "process_max_fds", "process_cpu_seconds_total", "process_resident_memory_bytes", "go_goroutines"}

var (
	metricName = regexp.MustCompile(`\b(?:unifiedd_[a-z_]+|process_[a-z_]+|go_[a-z_]+)\b|\bup\b`)
	selector   = regexp.MustCompile(`\b(unifiedd_[a-z_]+)\{([^}]*)\}`)
	matcher    = regexp.MustCompile(`([a-z_]+)\s*(?:=~|!~|!=|=)`)
	everywhere = []string{"job", "instance", "le", "quantile"} // labels that Prometheus adds, or of distributions
)

// find returns the metric of which a series with that name is.
func find(table []metrics.Metric, name string) (metrics.Metric, bool) {
	for _, m := range table {
		base := name
		if m.Kind() == metrics.Histogram || m.Kind() == metrics.Summary {
			for _, end := range []string{"_bucket", "_sum", "_count"} {
				base = strings.TrimSuffix(base, end)
			}
		}
		if m.Name == base {
			return m, true
		}
	}
	return metrics.Metric{}, false
}

// checkNames returns an error if an expression names what the table does not have.
func checkNames(table []metrics.Metric, expr string) error {
	names := metricName.FindAllString(expr, -1)
	if len(names) == 0 {
		return fmt.Errorf("%s: it names no metric", expr)
	}
	for _, name := range names {
		if _, ok := find(table, name); !ok && !slices.Contains(foreign, name) {
			return fmt.Errorf("%s: there is no metric %s", expr, name)
		}
	}
	for _, s := range selector.FindAllStringSubmatch(expr, -1) {
		m, _ := find(table, s[1])
		for _, l := range matcher.FindAllStringSubmatch(s[2], -1) {
			if !slices.Contains(m.Labels, l[1]) && !slices.Contains(everywhere, l[1]) {
				return fmt.Errorf("%s: metric %s has no label %s", expr, m.Name, l[1])
			}
		}
	}
	return nil
}

// asYAML returns a document as YAML.
func asYAML(document any) ([]byte, error) {
	var b bytes.Buffer
	b.WriteString(heading)
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	err := errors.Join(e.Encode(document), e.Close())
	return b.Bytes(), err
}

// The documents of Prometheus.
type (
	group struct {
		Name  string  `yaml:"name"`
		Rules []alert `yaml:"rules"`
	}
	alert struct {
		Alert       string            `yaml:"alert"`
		Expr        string            `yaml:"expr"`
		For         string            `yaml:"for,omitempty"`
		Labels      map[string]string `yaml:"labels"`
		Annotations map[string]string `yaml:"annotations"`
	}
	test struct {
		Interval string      `yaml:"interval"`
		Input    []input     `yaml:"input_series"`
		Alerts   []alertTest `yaml:"alert_rule_test"`
	}
	input struct {
		Series string `yaml:"series"`
		Values string `yaml:"values"`
	}
	alertTest struct {
		At     string     `yaml:"eval_time"`
		Name   string     `yaml:"alertname"`
		Expect []expected `yaml:"exp_alerts"`
	}
	expected struct {
		Labels      map[string]string `yaml:"exp_labels"`
		Annotations map[string]string `yaml:"exp_annotations"`
	}
)

func ruleDocument() any {
	g := group{Name: "unifiedd"}
	for _, r := range rules {
		a := alert{Alert: r.name, Expr: r.expr, Labels: map[string]string{"severity": r.severity}, Annotations: r.annotations(func(label string) string { return "{{ $labels." + label + " }}" })}
		if r.since > 0 {
			a.For = fmt.Sprintf("%ds", int(r.since/time.Second))
		}
		g.Rules = append(g.Rules, a)
	}
	return map[string]any{"groups": []group{g}}
}

var labelWord = regexp.MustCompile(`\$labels\.([a-z]+)`)

// annotations returns the texts of an alert, with what value returns in place of each label.
func (r *rule) annotations(value func(label string) string) map[string]string {
	text := func(s string) string {
		return labelWord.ReplaceAllStringFunc(s, func(word string) string { return value(strings.TrimPrefix(word, "$labels.")) })
	}
	return map[string]string{"summary": text(r.summary), "description": text(r.remedy)}
}

// testDocument returns two tests for each rule: with its own series it fires with these labels and texts, and
// with those of a daemon that is well it does not.
func testDocument() any {
	well := test{Interval: "15s", Input: healthy()}
	var tests []test
	for _, r := range rules {
		labels := map[string]string{"severity": r.severity}
		for name, value := range r.labels {
			labels[name] = value
		}
		t := test{Interval: "15s", Alerts: []alertTest{{"12m", r.name, []expected{{labels, r.annotations(func(label string) string { return r.labels[label] })}}}}}
		for _, s := range r.fires {
			t.Input = append(t.Input, input{s.name, s.values})
		}
		tests = append(tests, t)
		well.Alerts = append(well.Alerts, alertTest{"12m", r.name, []expected{}})
	}
	return map[string]any{"rule_files": []string{rulesFile}, "evaluation_interval": "15s", "tests": append(tests, well)}
}

// healthy returns all metrics of a daemon that is well: each counter stands still or counts what is good.
func healthy() (all []input) {
	labels := strings.NewReplacer("flow", "f", "interface", "eth1", "reason", "none", "host", "h")
	good := map[string]string{"unifiedd_flow_up": "1x60", "unifiedd_peer_up": "1x60", "unifiedd_group_leader_known": "1x60", "unifiedd_config_last_reload_successful": "1x60", "unifiedd_zero_copy": "1x60", "unifiedd_cluster_up": "1x60", "unifiedd_cluster_registered": "1x60",
		"unifiedd_region_bytes": "268435456x60", "unifiedd_received_packets_total": "0+1000x60", "unifiedd_durable_packets_total": "0+1000x60", "unifiedd_disk_free_bytes": "100x60", "unifiedd_disk_floor_bytes": "10x60",
		"unifiedd_time_seconds": "0+15x60", "unifiedd_certificate_expires_timestamp_seconds": "8640000x60"}
	for _, m := range metrics.Table() {
		if m.Kind() == metrics.Histogram || m.Kind() == metrics.Summary {
			continue
		}
		var b strings.Builder
		for _, l := range m.Labels {
			fmt.Fprintf(&b, ",%s=%q", l, labels.Replace(l))
		}
		values, ok := good[m.Name]
		if !ok {
			values = "0x60"
		}
		all = append(all, input{on(m.Name, strings.TrimPrefix(b.String(), ",")), values})
	}
	// What is no fault: packets that a rule drops, health checks that close the connection, a client that asks a follower.
	return append(all, input{on("up", ""), "1x60"}, input{on("process_start_time_seconds", ""), "100x60"}, input{on("process_open_fds", ""), "20x60"}, input{on("process_max_fds", ""), "65536x60"},
		input{on("unifiedd_dropped_packets_total", `flow="f",interface="eth1",reason="filter_dropped"`), "0+100x60"},
		input{on("unifiedd_failed_handshakes_total", `flow="f",reason="closed"`), "0+10x60"},
		input{on("unifiedd_refused_total", `flow="f",reason="not_leader"`), "0+10x60"})
}
