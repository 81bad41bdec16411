package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/unifiedd/unifiedd/flows/config"
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
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%s → %s\n", f.Name, f.State, rate, lostOf(f), f.From, f.To)
	}
	_ = t.Flush() // a strings.Builder takes everything
	for _, p := range daemonProblems(s) {
		printProblem(w, "the daemon", p)
	}
	for i := range s.Flows {
		f := &s.Flows[i]
		for _, p := range f.Problems() {
			if p.Past && !f.LostAt.IsZero() {
				p.What += fmt.Sprintf(" (the last %v ago)", time.Since(f.LostAt).Round(time.Second))
			}
			printProblem(w, "flow "+f.Name, p)
		}
	}
	_, err := io.WriteString(to, w.String())
	return err
}

func printProblem(w io.Writer, whose string, p status.Problem) {
	fmt.Fprintf(w, "\n%s: %s\n", whose, strings.ReplaceAll(p.What, "\n", "\n  "))
	if p.Remedy != "" {
		fmt.Fprintf(w, "  %s\n", p.Remedy)
	}
}

// lostOf returns how many packets or messages a flow has lost, also to its peers.
func lostOf(f *status.Flow) (n uint64) {
	for _, lost := range f.Lost() {
		n += lost
	}
	if f.Sends != nil {
		for i := range f.Sends.Peers {
			for _, lost := range f.Sends.Peers[i].Dropped {
				n += lost
			}
		}
	}
	return n
}

// daemonProblems returns what is wrong with the daemon itself.
func daemonProblems(s *status.Daemon) (all []status.Problem) {
	add := func(remedy, what string, args ...any) {
		all = append(all, status.Problem{Severity: status.Warning, What: fmt.Sprintf(what, args...), Remedy: remedy})
	}
	if r := s.Config.Last; r != nil && !r.Outcome.Good() {
		first, _, _ := strings.Cut(r.Error, "\n")
		add("unifiedd check says what is wrong with the file", "the last reload was %s: %s", r.Outcome, first)
	}
	if s.TLS != nil && s.TLS.Expired {
		add("renew it, and unifiedd reload", "its certificate has expired at %s", s.TLS.Expires.Format(time.RFC3339))
	}
	if c := s.Cluster; c != nil && !c.Up {
		add("", "the registry of the cluster does not answer")
	}
	if t := s.Trace; t != nil && t.Error != "" {
		add("", "not all flows are recorded: %s", t.Error)
	}
	if s.Region.Ordinary && usesRegion(s.Flows) {
		add("unifiedd doctor prints the command that reserves huge pages", "the region is on ordinary pages: every device is slower")
	}
	return all
}

// usesRegion reports whether a flow's packets are in the region.
func usesRegion(all []status.Flow) bool {
	for i := range all {
		if all[i].Engine != string(config.EnginePacket) {
			return true
		}
	}
	return false
}
