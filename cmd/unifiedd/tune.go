package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/card"
	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/tune"
	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/internal/pairs"
)

// tuneFlags are the flags of tune.
type tuneFlags struct {
	duration            time.Duration
	size, filter, pages string
	output              string
	only                []string
	force, anyway       bool
	asJSON              bool
	apply, guard        bool
}

func newTune() *cobra.Command {
	var f tuneFlags
	c := &cobra.Command{
		Use:   "tune INTERFACE|FILE|DEVICE",
		Short: "Measure which settings suit an interface, a file or a disk, and propose them",
		Long: `Measure which settings suit an interface, a file or a disk, and propose them.

For a file or a block device packets are generated and written, with the settings of a flow
to storage; the files are removed again, and a device is written over, which takes --force.
For an interface packets are received and discarded, which takes them from the host, with the
settings of a flow from an interface: there must be traffic meanwhile. An interface that the
host or your session depends on takes --anyway.

Each setting is measured with another value and without it, in turn, several times. A value
is proposed only if a bound of 95 % says that it is better; otherwise the default stays. At
the end the whole proposal is compared with the defaults. Nothing of the system is changed,
unless --apply is given: then settings of the interface's card are tried, too, which are not
in a configuration (queues, receive ring, coalescing, and the processors of its interrupts).
What helps stays, and all else is as before at the end, however this ends. The link may go
down for a moment with each change.`,
		Example: `  unifiedd tune /var/lib/unifiedd/feed
  unifiedd tune --filter 'udp and dst port 5000' eth1 -o tuned.yaml
  unifiedd tune --apply eth1`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: completeInterfaces(cobra.ShellCompDirectiveDefault),
		RunE: func(c *cobra.Command, args []string) error {
			if f.guard {
				return tune.StandGuard(args[0], c.InOrStdin(), c.OutOrStdout(), c.ErrOrStderr())
			}
			s, err := f.subject(args[0])
			if err != nil {
				return err
			}
			if f.apply && !c.Flags().Changed("duration") {
				f.duration = 3 * time.Minute // there is more to try
			}
			ctx, stop := untilSignal(c.Context())
			defer stop()
			r, err := f.measure(ctx, s, c.ErrOrStderr())
			if errors.Is(err, context.Canceled) {
				err = fmt.Errorf("interrupted before there was a result (%w)", err)
			}
			if err != nil {
				return fmt.Errorf("tune %s: %w", args[0], err)
			}
			return f.report(c.OutOrStdout(), r)
		},
	}
	s := c.Flags()
	s.DurationVar(&f.duration, "duration", time.Minute, "measure for about this `TIME`; with --apply it is 3m if not given")
	s.StringVar(&f.size, "size", "512", "`BYTES` of a generated packet")
	s.StringVar(&f.filter, "filter", "", "of an interface, take what matches this `EXPRESSION`")
	s.StringVar(&f.pages, "pages", string(config.PagesAuto), "pages of the region: auto, 2MiB or ordinary")
	s.Var((*settingNames)(&f.only), "only", "try only these `SETTINGS`, with commas, such as worker.cpu or 'ethtool -G'")
	s.StringVarP(&f.output, "output", "o", "", "write the proposed configuration to this `FILE`, which must not exist")
	s.BoolVar(&f.force, "force", false, "write over the device")
	s.BoolVar(&f.anyway, "anyway", false, "take packets also of the loopback interface, and of those with the default route or your SSH session")
	s.BoolVar(&f.apply, "apply", false, "try settings of the interface's card, too, and leave those that help")
	s.BoolVar(&f.guard, "guard", false, "undo what another process has changed of the card when it ends")
	s.BoolVar(&f.asJSON, "json", false, "print JSON")
	if err := s.MarkHidden("guard"); err != nil {
		panic(err) // the flag was just added
	}
	return c
}

// settingNames are the settings of --only.
type settingNames []string

// Type tells explainValue what a value is.
func (n *settingNames) Type() string { return "settings" }

func (n *settingNames) String() string { return strings.Join(*n, ",") }

// Set adds settings.
func (n *settingNames) Set(text string) error {
	for name := range strings.SplitSeq(text, ",") {
		if !slices.Contains(tune.Settings(), name) {
			return fmt.Errorf("%q is no setting that tune tries", name)
		}
		*n = append(*n, name)
	}
	return nil
}

// subject checks the command line.
func (f *tuneFlags) subject(name string) (s tune.Subject, err error) {
	kind, err := tune.KindOf(name)
	if err != nil {
		return s, err
	}
	s = tune.Subject{Name: name, Kind: kind, Filter: f.filter, Pages: config.Pages(f.pages), Only: f.only}
	if s.Size, err = config.ParseSize(f.size); err != nil {
		return s, fmt.Errorf("--size %w", err)
	}
	switch {
	case s.Pages != config.PagesAuto && s.Pages != config.Pages2MiB && s.Pages != config.PagesOrdinary:
		return s, fmt.Errorf("--pages %s: it must be auto, 2MiB or ordinary", f.pages)
	case kind == tune.Device && !f.force:
		return s, fmt.Errorf("%s is a device, and what is on it would be written over (--force does that)", name)
	case kind != tune.Interface && f.filter != "":
		return s, errors.New("--filter is for packets of an interface")
	case kind != tune.Interface && f.apply:
		return s, fmt.Errorf("--apply changes the card of an interface, and %s is none: for a file or a disk all that is tried is in the configuration", name)
	case kind == tune.Interface && !f.anyway:
		if why, err := dependsOn(name); err != nil || why != "" {
			return s, cmp.Or(err, fmt.Errorf("tune takes packets away from the host, and %s %s (--anyway does that)", name, why))
		}
	}
	return s, nil
}

// measure measures, with a card that another process restores if this one cannot.
func (f *tuneFlags) measure(ctx context.Context, s tune.Subject, stderr io.Writer) (r *tune.Result, err error) {
	tell := func(what string) { fmt.Fprintf(stderr, "measuring %s\n", what) }
	if !f.apply {
		return tune.Tune(ctx, s, f.duration, tell)
	}
	o := &tune.Outside{}
	if o.Card, err = card.Find(s.Name); err != nil {
		return nil, err
	}
	if o.Before, o.Absent, err = o.Card.Probe(); err != nil {
		return nil, err
	}
	announce(stderr, o)
	guard, err := tune.StartGuard(o, "tune", "--guard", o.Card.Name)
	if err != nil {
		return nil, err
	}
	s.Outside = o
	done := false // also after a panic
	defer func() { err = errors.Join(err, guard.End(done)) }()
	r, err = tune.Tune(ctx, s, f.duration, tell)
	done = err == nil
	return r, err
}

// announce says what of a card is changed for a while.
func announce(w io.Writer, o *tune.Outside) {
	for _, which := range card.Order() {
		if value, is := o.Before[which]; is {
			fmt.Fprintf(w, "%s of %s is %s, and is changed for moments; the link may go down then\n", which, o.Card.Name, value)
		}
	}
	for _, a := range o.Absent {
		fmt.Fprintf(w, "%s of %s is left alone: %s\n", a.Setting, o.Card.Name, a.Why)
	}
}

// report prints what was found, and writes the configuration.
func (f *tuneFlags) report(w io.Writer, r *tune.Result) error {
	if f.output != "" {
		out, err := os.OpenFile(f.output, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if err != nil {
			return err
		}
		if _, err := out.WriteString(r.Proposal); err != nil {
			return errors.Join(err, out.Close(), os.Remove(f.output))
		}
		if err := out.Close(); err != nil {
			return err
		}
	}
	if f.asJSON {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(r)
	}
	return printTuned(w, r)
}

// printTuned prints each comparison, and the configuration.
func printTuned(w io.Writer, r *tune.Result) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintf(t, "SETTING\tVALUE\tAGAINST\tPACKETS A SECOND\tPROCESSOR TIME OF A PACKET\t\n")
	for i := range r.Trials {
		one := &r.Trials[i]
		name, value, against := one.Setting, one.Value, one.Against
		if name == "" {
			name, value, against = "all", "proposed", "defaults"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", name, left(value), left(against), change(one.Rate, one.With.Rate, "%.0f"), change(one.CPU, one.With.CPU, "%.0f ns"), one.Why)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	printCard(w, r.Card)
	if !r.Better {
		_, err := fmt.Fprintf(w, "\nNothing is clearly better than the defaults:\n\n%s", r.Proposal)
		return err
	}
	_, err := fmt.Fprintf(w, "\nProposed:\n\n%s", r.Proposal)
	return err
}

// printCard prints what became of the card's settings.
func printCard(w io.Writer, c *tune.Change) {
	if c == nil {
		return
	}
	fmt.Fprintf(w, "\nSettings of the card %s:\n", c.Name)
	var set, undo []string
	for _, one := range c.Settings {
		if set, undo = append(set, one.Set...), append(undo, one.Undo...); len(one.Set) > 0 {
			fmt.Fprintf(w, "  %s was %s, and is now %s\n", one.Setting, one.Before, one.After)
		} else {
			fmt.Fprintf(w, "  %s is %s, as before\n", one.Setting, one.Before)
		}
	}
	for _, a := range c.Absent {
		fmt.Fprintf(w, "  %s was left alone: %s\n", a.Setting, a.Why)
	}
	for _, part := range []struct {
		what     string
		commands []string
	}{{"The card forgets this at a restart. To set it again:", set}, {"To undo it:", undo}} {
		if len(part.commands) > 0 {
			fmt.Fprintf(w, "%s\n  %s\n", part.what, strings.Join(part.commands, "\n  "))
		}
	}
}

func left(value string) string {
	if value == "" {
		return "-"
	}
	return value
}

// change prints a figure, and by how much it differs, with the bounds.
func change(e pairs.Estimate, figure float64, format string) string {
	if figure == 0 {
		return "-"
	}
	percent := func(ratio float64) float64 { return 100 * (ratio - 1) }
	return fmt.Sprintf(format+", %+.1f %% (%+.1f to %+.1f)", figure, percent(e.Ratio), percent(e.Low), percent(e.High))
}
