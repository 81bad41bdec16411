package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/control"
	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/status"
)

func newReload() *cobra.Command {
	var socket string
	c := &cobra.Command{
		Use:   "reload",
		Short: "Have the running daemon read its configuration again",
		Long: `Have the running daemon read its configuration again, and say what came of it.

Flows that do not change are not touched. Those that change or are gone stop, which
writes and flushes what they have; then those that changed or are new start. A
configuration with a mistake changes nothing, and if a flow cannot start the daemon
goes back to what ran before: the exit status is then 1. 'unifiedd check --plan' says
beforehand what would happen. Certificates, authorities and the keys of NVMe hosts are
read again, too: sessions whose certificate or key is gone end. SIGHUP does the same and leaves the answer to the log.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			raw, err := control.Reload(c.Context(), socket)
			if err != nil {
				return err
			}
			var s status.Reload
			if err := decode(raw, &s); err != nil {
				return fmt.Errorf("the daemon's answer is not valid: %w (is it of another version?)", err)
			}
			return printReload(c.OutOrStdout(), &s)
		},
	}
	addSocket(c, &socket)
	return c
}

// printReload prints the result of a reload for people.
func printReload(w io.Writer, s *status.Reload) error {
	fmt.Fprintf(w, "%s, generation %d, after %v\n", s.Outcome, s.Generation, time.Duration(s.Seconds*float64(time.Second)).Round(time.Millisecond))
	if s.Error != "" {
		fmt.Fprintf(w, "but: %s\n", s.Error)
	}
	if err := printPlan(w, &s.Plan); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(s.Ended)) {
		fmt.Fprintf(w, "%s: %d sessions ended: their certificate or key is gone or is another one\n", name, s.Ended[name])
	}
	return nil
}

// printPlan prints a sentence for each flow, about what a reload does to it.
func printPlan(w io.Writer, p *config.Plan) error {
	var b strings.Builder
	each := func(names []string, what string) {
		for _, name := range names {
			fmt.Fprintf(&b, "flow %s: %s\n", name, what)
		}
	}
	each(p.Kept, "goes on unchanged")
	for _, c := range p.Changed {
		fmt.Fprintf(&b, "flow %s: stops and starts again (%s)\n", c.Flow, strings.Join(c.Keys, ", "))
	}
	each(p.Filters, "the filter or the multicast groups change, nothing restarts")
	each(p.Subsystems, "namespaces, subsystems, hosts or the disk's size change, nothing restarts")
	each(p.Groups, "the list of members changes, nothing restarts")
	each(p.Added, "is new, and starts")
	each(p.Removed, "is gone, and stops")
	for _, name := range p.Credentials {
		if name == "tls" {
			fmt.Fprintln(&b, "the daemon: certificates or authorities are read again")
			continue
		}
		fmt.Fprintf(&b, "flow %s: keys of hosts are read again, nothing restarts\n", name)
	}
	if p.Settings != nil {
		fmt.Fprintf(&b, "the daemon: settings change (%s)\n", strings.Join(p.Settings, ", "))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// printPlanned asks the daemon what a reload would do to its flows, and prints it. The reload would
// use file, or the daemon's own configuration file as it is now.
func printPlanned(ctx context.Context, w io.Writer, socket, file string) error {
	var text io.Reader
	if file != "" {
		f, err := os.Open(file)
		if err != nil {
			return fmt.Errorf("read configuration: %w", err)
		}
		defer f.Close()
		text = f
	}
	raw, err := control.Plan(ctx, socket, file, text)
	if err != nil {
		return err
	}
	var p config.Plan
	if err := decode(raw, &p); err != nil {
		return fmt.Errorf("the daemon's answer is not valid: %w (is it of another version?)", err)
	}
	if p.Empty() {
		fmt.Fprintln(w, "nothing would change")
	}
	return printPlan(w, &p)
}

// printConfig prints which configuration the daemon uses.
func printConfig(w io.Writer, c *status.Config) {
	reloads := make(map[string]uint64)
	for outcome, n := range c.Reloads {
		reloads[string(outcome)] = n
	}
	fmt.Fprintf(w, "config\tgeneration %d, loaded %s; reloads: %s\n", c.Generation, c.Loaded.Format(time.RFC3339), nonzero(reloads))
	if c.Since != nil {
		fmt.Fprintf(w, "\ta reload is under way since %s\n", c.Since.Format(time.RFC3339))
	}
	if l := c.Last; l != nil && l.Error != "" {
		first, _, _ := strings.Cut(l.Error, "\n")
		fmt.Fprintf(w, "\tthe last reload was %s at %s: %s\n", l.Outcome, l.At.Format(time.RFC3339), first)
	}
}
