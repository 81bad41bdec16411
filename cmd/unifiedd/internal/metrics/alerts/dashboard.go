package alerts

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/metrics"
)

// The documents of Grafana, of which these fields are enough.
type (
	object = map[string]any
	panel  struct {
		title, unit, kind string // kind is that of Grafana
		text              string // what it shows, for people
		targets           []target
		width, height     int
	}
	target struct{ expr, legend string }
)

// only selects the daemons and flows that the user has chosen.
const only = `job=~"$job",instance=~"$instance"`

// overview are the panels at the top, which say whether all is well.
func overview() []panel {
	select1 := func(metric, more string) string { return metric + "{" + only + more + "}" }
	return []panel{
		{"Flows that run", "short", "stat", "", []target{{"sum(" + select1("unifiedd_flow_up", "") + ")", "run"}, {"count(" + select1("unifiedd_flow_up", "") + ")", "all"}}, 4, 5},
		{"Flows that wait", "short", "stat", "", []target{{"sum(" + select1("unifiedd_flow_waiting", "") + ")", "wait"}}, 4, 5},
		{"Alerts", "short", "stat", "Alerts of these rules that fire now.", []target{{`count(ALERTS{alertname=~"Unifiedd.*",alertstate="firing",` + only + `}) or vector(0)`, "firing"}}, 4, 5},
		{"Frames by owner", "short", "timeseries", "They add up to the frames of the region.", []target{{"sum by (owner) (" + select1("unifiedd_frames", "") + ")", "{{owner}}"}}, 12, 5},
		{"Received", "pps", "timeseries", "", []target{{"sum by (instance, flow) (rate(" + select1("unifiedd_received_packets_total", `,flow=~"$flow"`) + "[$__rate_interval]))", "{{instance}} {{flow}}"}}, 8, 8},
		{"Lost, by reason", "pps", "timeseries", "docs/reference/reasons.md has each reason, and what to do.", []target{{"sum by (instance, flow, reason) (rate(" + select1("unifiedd_dropped_packets_total", `,flow=~"$flow"`) + "[$__rate_interval])) > 0", "{{instance}} {{flow}} {{reason}}"}}, 8, 8},
		{"Copies per byte", "short", "timeseries", "Ours, and the kernel's.", []target{
			{"sum by (instance, flow) (rate(" + select1("unifiedd_copied_bytes_total", `,flow=~"$flow"`) + "[$__rate_interval])) / sum by (instance, flow) (rate(" + select1("unifiedd_received_bytes_total", `,flow=~"$flow"`) + "[$__rate_interval]))", "{{instance}} {{flow}} ours"},
			{"sum by (instance, flow) (rate(" + select1("unifiedd_kernel_copied_bytes_total", `,flow=~"$flow"`) + "[$__rate_interval])) / sum by (instance, flow) (rate(" + select1("unifiedd_received_bytes_total", `,flow=~"$flow"`) + "[$__rate_interval]))", "{{instance}} {{flow}} the kernel's"},
		}, 8, 8},
	}
}

// subjects are the rows of the dashboard, by the beginnings of the metrics' names. The first that fits has a
// metric.
var subjects = []struct {
	title    string
	prefixes []string
}{
	{"Groups", []string{"group_"}},
	{"Names of daemons", []string{"cluster_"}},
	{"Attached programs", []string{"attach_", "channel_", "state_"}},
	{"NVMe hosts", []string{"nvme_"}},
	{"RDMA clients and peers", []string{"peer_", "rdma_", "connections_", "broken_", "replayed_", "refused_", "failed_", "posted_", "granted_", "grants_", "log_", "stage_", "flow_latency"}},
	{"Blocks", []string{"block_", "cache_"}},
	{"Replay", []string{"replay_"}},
	{"Files and disks", []string{"disk_", "written_", "durable_", "waiting_", "segments_", "removed_", "unreadable_", "cut_", "index_"}},
	{"The daemon", []string{"frames", "region_", "worker_", "config_", "time_"}},
	{"Packets", []string{""}},
}

// dashboard returns the dashboard, with one panel for each metric, and the expressions in it.
func dashboard(table []metrics.Metric) (text []byte, expressions []string, err error) {
	b := board{}
	for _, p := range overview() {
		b.add(p)
	}
	for _, s := range slices.Backward(subjects) {
		b.row(s.title)
		for _, m := range table {
			if subjectOf(m) == s.title {
				b.add(panelOf(m))
			}
		}
	}
	for _, e := range b.expressions {
		if !strings.HasPrefix(e, "count(ALERTS") {
			expressions = append(expressions, e)
		}
	}
	text, err = json.MarshalIndent(object{
		"title": "unifiedd", "uid": "unifiedd", "tags": []string{"unifiedd"}, "schemaVersion": 38, "editable": true, "refresh": "30s",
		"description": "All metrics of unifiedd. Made from the table that defines them.",
		"time":        object{"from": "now-1h", "to": "now"},
		"templating": object{"list": []object{
			{"name": "source", "label": "Data source", "type": "datasource", "query": "prometheus"},
			variable("job", "Job", `label_values(unifiedd_region_bytes, job)`),
			variable("instance", "Daemon", `label_values(unifiedd_region_bytes{job=~"$job"}, instance)`),
			variable("flow", "Flow", `label_values(unifiedd_flow_up{`+only+`}, flow)`),
		}},
		"panels": b.panels,
	}, "", " ")
	return append(text, '\n'), expressions, err
}

// variable returns a choice of values of a label, of which several may be chosen.
func variable(name, label, query string) object {
	return object{"name": name, "label": label, "type": "query", "query": query, "datasource": source(), "includeAll": true, "multi": true, "refresh": 2, "sort": 1,
		"current": object{"text": "All", "value": "$__all"}, "allValue": ".*"}
}

func source() object { return object{"type": "prometheus", "uid": "${source}"} }

func subjectOf(m metrics.Metric) string {
	name := strings.TrimPrefix(m.Name, "unifiedd_")
	for _, s := range subjects {
		if slices.ContainsFunc(s.prefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) }) {
			return s.title
		}
	}
	return ""
}

// panelOf returns the panel of a metric: a rate of a counter, quantiles of a distribution, or the value.
func panelOf(m metrics.Metric) panel {
	p := panel{title: strings.TrimPrefix(m.Name, "unifiedd_"), text: m.Help, unit: unitOf(m), kind: "timeseries", width: 8, height: 7}
	selected, legend := only, "{{instance}}"
	for _, l := range m.Labels {
		if l == "flow" {
			selected += `,flow=~"$flow"`
		}
		legend += " {{" + l + "}}"
	}
	series := m.Name + "{" + selected + "}"
	switch m.Kind() {
	case metrics.Counter:
		p.targets = []target{{"rate(" + series + "[$__rate_interval])", legend}}
	case metrics.Histogram:
		by := strings.Join(append([]string{"instance", "le"}, m.Labels...), ", ")
		for _, q := range []string{"0.5", "0.99", "0.999"} {
			p.targets = append(p.targets, target{fmt.Sprintf("histogram_quantile(%s, sum by (%s) (rate(%s_bucket{%s}[$__rate_interval])))", q, by, m.Name, selected), legend + " " + q})
		}
	case metrics.Summary:
		p.targets = []target{{series, legend + " {{quantile}}"}}
	default:
		p.targets = []target{{series, legend}}
	}
	return p
}

// unitOf returns Grafana's name of a metric's unit.
func unitOf(m metrics.Metric) string {
	name := strings.TrimSuffix(m.Name, "_total")
	counter := m.Kind() == metrics.Counter
	switch {
	case strings.HasSuffix(name, "_timestamp_seconds") || name == "unifiedd_time_seconds":
		return "dateTimeAsIso"
	case strings.HasSuffix(name, "_seconds") && counter:
		return "percentunit" // seconds a second
	case strings.HasSuffix(name, "_seconds"):
		return "s"
	case strings.HasSuffix(name, "_bytes") && counter:
		return "Bps"
	case strings.HasSuffix(name, "_bytes"):
		return "bytes"
	case strings.HasSuffix(name, "_packets") && counter:
		return "pps"
	case counter:
		return "ops"
	}
	return "short"
}

// board places panels from left to right and from top to bottom.
type board struct {
	panels      []object
	expressions []string
	x, y, high  int // where the next one goes, and the height of this line
}

func (b *board) newLine() { b.x, b.y, b.high = 0, b.y+b.high, 0 }

func (b *board) row(title string) {
	b.newLine()
	b.panels = append(b.panels, object{"id": len(b.panels) + 1, "type": "row", "title": title, "collapsed": false, "panels": []object{}, "gridPos": object{"x": 0, "y": b.y, "w": 24, "h": 1}})
	b.y++
}

func (b *board) add(p panel) {
	if b.x+p.width > 24 {
		b.newLine()
	}
	targets := make([]object, 0, len(p.targets))
	for i, t := range p.targets {
		targets = append(targets, object{"refId": string(rune('A' + i)), "expr": t.expr, "legendFormat": t.legend, "datasource": source()})
		b.expressions = append(b.expressions, t.expr)
	}
	b.panels = append(b.panels, object{"id": len(b.panels) + 1, "type": p.kind, "title": p.title, "description": p.text, "datasource": source(), "targets": targets,
		"fieldConfig": object{"defaults": object{"unit": p.unit, "min": 0}, "overrides": []object{}}, "gridPos": object{"x": b.x, "y": b.y, "w": p.width, "h": p.height}})
	b.x, b.high = b.x+p.width, max(b.high, p.height)
}
