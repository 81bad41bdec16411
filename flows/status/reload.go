package status

import (
	"time"

	"github.com/unifiedd/unifiedd/flows/config"
)

// Outcome is the outcome of a reload.
type Outcome string

// The outcomes of a reload.
const (
	Applied    Outcome = "applied"     // the daemon runs with the new configuration
	Unchanged  Outcome = "unchanged"   // it equals the running configuration
	Refused    Outcome = "refused"     // nothing changed: the file is unreadable or has mistakes
	RolledBack Outcome = "rolled_back" // a flow did not open: the earlier flows run again
	Broken     Outcome = "broken"      // as rolled_back, but not all earlier flows run
	Busy       Outcome = "busy"        // nothing changed: another reload was in progress
)

// Outcomes are all outcomes.
var Outcomes = []Outcome{Applied, Unchanged, Refused, RolledBack, Broken, Busy}

// Good reports whether the daemon runs with the requested configuration.
func (o Outcome) Good() bool { return o == Applied || o == Unchanged }

// Config is the configuration of a daemon, and the results of reloads.
type Config struct {
	Generation uint64             `json:"generation" metric:"config_generation"`                           // 1 at the start; each applied reload adds 1
	Loaded     time.Time          `json:"loaded"`                                                          // when this generation was loaded
	Succeeded  time.Time          `json:"succeeded" metric:"config_last_reload_success_timestamp_seconds"` // when the start or a reload last confirmed it
	Since      *time.Time         `json:"reloading,omitempty"`                                             // start of the reload in progress; nil: none
	Last       *Reload            `json:"last,omitempty"`                                                  // the last reload that was not busy; nil: none
	Reloads    map[Outcome]uint64 `json:"reloads" metric:"config_reloads_total,status"`
}

// Reload is one reload.
type Reload struct {
	Outcome    Outcome     `json:"outcome"`
	Generation uint64      `json:"generation"` // with which the daemon runs afterwards
	At         time.Time   `json:"at"`         // when it ended
	Seconds    float64     `json:"seconds"`
	Plan       config.Plan `json:"plan"` // empty if it was refused
	// Ended is the number of sessions ended because their certificate or key is no longer valid, for
	// each name in Plan.Credentials.
	Ended map[string]int `json:"ended,omitempty"`
	// Error is the reason for the outcome. If the configuration was applied, it names what stopped
	// flows lost, and sessions or keys that could not be replaced.
	Error string `json:"error,omitempty"`
}
