package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/control"
	"github.com/unifiedd/unifiedd/flows/status"
)

// statusFlags are the flags of status.
type statusFlags struct {
	socket, output string
	check, watch   bool
	asJSON         bool // as of earlier versions: -o json
}

// Values of -o.
const (
	outputText = "text"
	outputWide = "wide"
	outputJSON = "json"
)

func newStatus() *cobra.Command {
	var f statusFlags
	c := &cobra.Command{
		Use:   "status [FLOW]",
		Short: "Ask the running daemon what it does, what it lost and why",
		Long: `Print a line for each flow of the running daemon, and then what is wrong and what to do
about it. With FLOW print all that the daemon knows of that flow; with -o wide of all flows,
and of the daemon itself.

With --check print one line for a monitor. The exit status is then 0 if all flows run,
1 (warning) if a flow has lost something in the last five minutes, is stopped, or lacks
something, 2 (critical) if a flow failed or waits, or the daemon does not answer, and
3 if its answer is not understood.`,
		Example: `  unifiedd status
  unifiedd status feed
  unifiedd status --check
  unifiedd status -o json | jq '.flows[] | {name, state, dropped}'`,
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: completeFlows(&f.socket, anyFlow),
		PreRunE: func(*cobra.Command, []string) error {
			if f.asJSON {
				f.output = outputJSON
			}
			switch f.output {
			case outputText, outputWide, outputJSON:
				return nil
			}
			return fmt.Errorf("-o, --output: %q is not known (give text, wide or json)", f.output)
		},
		RunE: func(c *cobra.Command, args []string) error {
			flow := strings.Join(args, "")
			switch {
			case f.check:
				return f.monitor(c.Context(), c.OutOrStdout(), flow)
			case f.watch:
				return f.repeat(c.Context(), c.OutOrStdout(), flow)
			}
			return f.once(c.Context(), c.OutOrStdout(), flow)
		},
	}
	addSocket(c, &f.socket)
	s := c.Flags()
	s.StringVarP(&f.output, "output", "o", outputText, "`FORMAT`: text, wide (all that there is) or json")
	s.BoolVar(&f.check, "check", false, "print one line for a monitor, and end with its status")
	s.BoolVar(&f.watch, "watch", false, "print it anew each second")
	addJSON(c, &f.asJSON)
	if err := s.MarkHidden("json"); err != nil {
		panic(err) // the flag was just added
	}
	c.MarkFlagsMutuallyExclusive("check", "watch")
	return c
}

// ask returns the daemon's answer.
func (f *statusFlags) ask(ctx context.Context) (raw []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return control.Status(ctx, f.socket)
}

// once prints the status, or that of one flow.
func (f *statusFlags) once(ctx context.Context, w io.Writer, flow string) error {
	raw, err := f.ask(ctx)
	switch {
	case err != nil:
		return err
	case f.output == outputJSON && flow == "":
		_, err := w.Write(raw)
		return err
	case f.output == outputJSON:
		return writeFlow(w, raw, flow)
	case f.output == outputWide && flow == "":
		return printRawStatus(w, raw)
	}
	s, one, err := decodeStatus(raw, flow)
	switch {
	case err != nil:
		return err
	case one == nil:
		return printSummary(w, s)
	}
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	printFlow(t, one)
	return t.Flush()
}

// decodeStatus decodes the daemon's answer, and finds the flow, if one is named.
func decodeStatus(raw []byte, flow string) (s *status.Daemon, one *status.Flow, err error) {
	s = new(status.Daemon)
	if err := decode(raw, s); err != nil {
		return nil, nil, fmt.Errorf("the daemon's answer is not valid: %w (is it of another version?)", err)
	}
	if flow == "" {
		return s, nil, nil
	}
	var names []string
	for i := range s.Flows {
		if s.Flows[i].Name == flow {
			return s, &s.Flows[i], nil
		}
		names = append(names, s.Flows[i].Name)
	}
	return nil, nil, fmt.Errorf("there is no flow %q (there is: %s)", flow, strings.Join(names, ", "))
}

// writeFlow writes the part of the daemon's answer that is about a flow.
func writeFlow(w io.Writer, raw []byte, flow string) error {
	if _, _, err := decodeStatus(raw, flow); err != nil {
		return err
	}
	var all struct{ Flows []json.RawMessage }
	if err := json.Unmarshal(raw, &all); err != nil {
		return err
	}
	for _, one := range all.Flows {
		var is struct{ Name string }
		if err := json.Unmarshal(one, &is); err != nil {
			return err
		}
		if is.Name == flow {
			_, err := fmt.Fprintf(w, "%s\n", one)
			return err
		}
	}
	return nil // decodeStatus found it
}

// repeat prints the status each second, until ctx ends. On a terminal each replaces the one before.
func (f *statusFlags) repeat(ctx context.Context, w io.Writer, flow string) error {
	before := ""
	if isTerminal(w) && f.output != outputJSON {
		before = "\x1b[H\x1b[J" // to the upper left corner, and clear
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		var text strings.Builder
		if err := f.once(ctx, &text, flow); err != nil {
			return err
		}
		if _, err := io.WriteString(w, before+text.String()); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// Exit statuses of --check, as monitors expect them of a plugin.
const (
	checkWarning  = 1
	checkCritical = 2
	checkUnknown  = 3
)

// monitor prints one line for a monitor, and returns its status.
func (f *statusFlags) monitor(ctx context.Context, w io.Writer, flow string) error {
	raw, err := f.ask(ctx)
	if err != nil {
		return endCheck(w, checkCritical, err.Error())
	}
	s, one, err := decodeStatus(raw, flow)
	if err != nil {
		return endCheck(w, checkUnknown, err.Error())
	}
	all := s.Flows
	if one != nil {
		all = []status.Flow{*one}
	}
	worst, what := 0, []string(nil)
	for i := range all {
		found := 0
		found, what = judge(&all[i], time.Now(), what)
		worst = max(worst, found)
	}
	if worst == 0 {
		what = []string{plural(len(all), "flow") + " without a problem"}
	}
	return endCheck(w, worst, strings.Join(what, "; "))
}

// judge returns the status of a flow for a monitor, and adds what is wrong with it.
func judge(f *status.Flow, now time.Time, what []string) (worst int, _ []string) {
	if f.State == status.Stopped {
		worst, what = checkWarning, append(what, "flow "+f.Name+" is stopped")
	}
	for _, p := range f.Problems(now) {
		if p.Severity == status.Info {
			continue
		}
		found := checkWarning
		if p.Severity == status.Error && !p.Past {
			found = checkCritical
		}
		worst, what = max(worst, found), append(what, "flow "+f.Name+" "+p.Full())
	}
	return worst, what
}

// endCheck prints the line of a monitor.
func endCheck(w io.Writer, code int, text string) error {
	word := []string{"OK", "WARNING", "CRITICAL", "UNKNOWN"}[code]
	if _, err := fmt.Fprintf(w, "%s: %s\n", word, strings.ReplaceAll(text, "\n", " ")); err != nil {
		return err
	}
	if code == 0 {
		return nil
	}
	return &statusError{status: code}
}
