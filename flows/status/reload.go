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
	Unchanged  Outcome = "unchanged"   // that says what it runs with already
	Refused    Outcome = "refused"     // nothing was touched: it cannot be read, or has mistakes
	RolledBack Outcome = "rolled_back" // some flow did not open: those that ran before run again
	Broken     Outcome = "broken"      // likewise, and not all of them do
	Busy       Outcome = "busy"        // nothing was touched: another reload was under way
)

// Outcomes are all outcomes.
var Outcomes = []Outcome{Applied, Unchanged, Refused, RolledBack, Broken, Busy}

// Good reports whether the daemon then runs with what was to be loaded.
func (o Outcome) Good() bool { return o == Applied || o == Unchanged }

// Config is the configuration of a daemon, and the outcome of attempts to load another.
type Config struct {
	Generation uint64             `json:"generation"`          // 1, and one more each time another was applied
	Loaded     time.Time          `json:"loaded"`              // when this one was
	Succeeded  time.Time          `json:"succeeded"`           // when it was last found to be what is wanted: at the start, or by a reload
	Since      *time.Time         `json:"reloading,omitempty"` // since when a reload is under way; nil: none is
	Last       *Reload            `json:"last,omitempty"`      // the last reload that was not busy; nil: there was none
	Reloads    map[Outcome]uint64 `json:"reloads"`
}

// Reload is one reload.
type Reload struct {
	Outcome    Outcome     `json:"outcome"`
	Generation uint64      `json:"generation"` // of what the daemon then runs with
	At         time.Time   `json:"at"`         // when it ended
	Seconds    float64     `json:"seconds"`
	Plan       config.Plan `json:"plan"` // nothing, where it was refused
	// Ended is how many sessions ended because their certificate or key is not good any more, of each name in Plan.Credentials.
	Ended map[string]int `json:"ended,omitempty"`
	Error string         `json:"error,omitempty"` // why it came to that; of one that was applied, what flows lost as they stopped
}
