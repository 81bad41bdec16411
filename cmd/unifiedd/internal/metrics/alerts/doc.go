// Package alerts has the rules by which Prometheus reports that a daemon needs somebody's attention, and
// the dashboard that shows all of its metrics.
//
// Rules and panels name metrics by the table of package metrics, and [Files] refuses a name or label that
// the table does not have. Each rule has a case in which it fires, for promtool. The files are in
// packaging/prometheus, and go generate makes them again.
package alerts

//go:generate go run ./generate ../../../../../packaging/prometheus
