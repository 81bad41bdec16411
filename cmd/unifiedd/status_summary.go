package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/unifiedd/unifiedd/flows/status"
)

// printSummary prints a line for each flow, and then what is wrong and what to do about it.
func printSummary(to io.Writer, s *status.Daemon) error {
	w, on := new(strings.Builder), ""
	if host, err := os.Hostname(); err == nil { // the daemon's: its socket is of this machine
		on = " on " + host
	}
	fmt.Fprintf(w, "unifiedd %s%s, process %d, up %v\n", s.Version, on, s.PID, time.Since(s.Started).Round(time.Second))
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "FLOW\tSTATE\tRATE\tLOST\tFROM → TO")
	for i := range s.Flows {
		f := &s.Flows[i]
		rate := "-"
		if f.State.Up() {
			rate = fmt.Sprintf("%.0f %s/s, %s", f.PPS, unitOf(f), bits(f.BPS))
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%s → %s\n", f.Name, f.State, rate, f.LostInAll(), f.From, f.To)
	}
	_ = t.Flush() // a strings.Builder takes everything
	for _, p := range s.Problems() {
		printProblem(w, "the daemon: ", p)
	}
	now := time.Now()
	for i := range s.Flows {
		f := &s.Flows[i]
		for _, p := range f.Problems(now) {
			if p.Past && !f.LostAt.IsZero() {
				p.Text += fmt.Sprintf(" (the last %v ago)", now.Sub(f.LostAt).Round(time.Second))
			}
			printProblem(w, "flow "+f.Name+" ", p)
		}
	}
	_, err := io.WriteString(to, w.String())
	return err
}

// printProblem prints a problem, unless it only says what could be faster.
func printProblem(w io.Writer, whose string, p status.Problem) {
	if p.Severity == status.Info && !p.Past {
		return
	}
	fmt.Fprintf(w, "\n%s%s\n", whose, strings.ReplaceAll(p.Full(), "\n", "\n  "))
	if p.Remedy != "" {
		fmt.Fprintf(w, "  %s\n", p.Remedy)
	}
}
