package main

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/unifiedd/unifiedd/flows/status"
)

var (
	descGeneration = describe("config_generation", "Which configuration the daemon runs with: 1 at the start, one more with each that was applied.")
	descLoaded     = describe("config_last_reload_successful", "1 unless the last attempt to load a configuration failed.")
	descSucceeded  = describe("config_last_reload_success_timestamp_seconds", "When a configuration was last loaded.")
	descReloads    = describe("config_reloads_total", "Attempts to load another configuration, by what became of them.", "status")
)

// collectConfig sends what became of attempts to load a configuration.
func collectConfig(out chan<- prometheus.Metric, c *status.Config) {
	gauge(out, descGeneration, float64(c.Generation))
	gauge(out, descLoaded, truth(c.Last == nil || c.Last.Outcome.Good()))
	gauge(out, descSucceeded, float64(c.Succeeded.UnixNano())/1e9)
	for outcome, n := range c.Reloads {
		counter(out, descReloads, n, string(outcome))
	}
}
