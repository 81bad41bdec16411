package main

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/unifiedd/unifiedd/internal/latency"
	"github.com/unifiedd/unifiedd/selftests/harness"
)

// result is the program's output.
type result struct {
	Command     string           `json:"command"`
	Did         string           `json:"did"`
	Messages    uint64           `json:"messages"`
	Bytes       uint64           `json:"bytes"`
	Seconds     float64          `json:"seconds"`
	Latency     *latency.Summary `json:"latency_ns,omitempty"`
	Position    uint64           `json:"position,omitempty"`
	Durability  string           `json:"durability,omitempty"`
	Method      string           `json:"method,omitempty"` // of the transfer: send or write
	Resent      uint64           `json:"resent"`
	Connections uint64           `json:"connections,omitempty"`
	Gap         time.Duration    `json:"longest_gap_ns,omitempty"` // the longest time without an acknowledgement while a message waited for one
	Sessions    int              `json:"sessions,omitempty"`
	Lost        uint64           `json:"lost,omitempty"`      // of a channel's reader, or of packets to a program
	Conflicts   uint64           `json:"conflicts,omitempty"` // reads of a state that were repeated, because the daemon wrote meanwhile
	Followed    uint64           `json:"followed,omitempty"`  // how often a state was at another daemon, or its daemon was started again
	GivenUp     uint64           `json:"given_up,omitempty"`  // reads of a state that had conflicts only
}

func (r result) print(out io.Writer, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(out).Encode(r)
	}
	fmt.Fprintf(out, "%s %d messages, %d bytes", r.Did, r.Messages, r.Bytes)
	if r.Seconds > 0 {
		fmt.Fprintf(out, ", in %.3f s: %.0f messages/s, %.1f MB/s", r.Seconds, float64(r.Messages)/r.Seconds, float64(r.Bytes)/r.Seconds/1e6)
	}
	if r.Lost > 0 {
		fmt.Fprintf(out, "; %d were lost", r.Lost)
	}
	if r.Conflicts > 0 || r.GivenUp > 0 {
		fmt.Fprintf(out, "; %d conflicts, %d reads given up", r.Conflicts, r.GivenUp)
	}
	if r.Followed > 0 {
		fmt.Fprintf(out, "; the state was followed %d times", r.Followed)
	}
	fmt.Fprintln(out)
	if l := r.Latency; l != nil && l.Count > 0 {
		fmt.Fprintf(out, "latency: %s\n", harness.LatencyText(l))
	}
	if r.Connections > 0 {
		fmt.Fprintf(out, "all are %s, the last one at position %d of the log; %d were sent again, over %d connections; longest time without an acknowledgement %.1f ms\n",
			r.Durability, r.Position, r.Resent, r.Connections, milliseconds(r.Gap))
	}
	return nil
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
