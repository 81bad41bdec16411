package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"github.com/unifiedd/unifiedd/flows/journal"
)

func newLogRepair() *cobra.Command {
	var yes bool
	c := &cobra.Command{
		Use:   "repair PATH",
		Short: "Mend a log that lacks something, or say what that would give up",
		Long: `Say what is wrong with a log on which a flow does not start, what can be kept and what has to
be given up; with --yes, do it. The heads of segments are made anew from what is in them. A
file of which nothing can be had back stays, under another name (.damaged). The manifest is
written anew. Positions are never used twice: where it is not known how far the log went, it
goes on behind all that it can have had. The flow must not run.

The exit status is 0 when there is nothing to mend, or it was mended, and else 1.`,
		Example: `  unifiedd log repair /var/lib/unifiedd/orders
  unifiedd log repair --yes /var/lib/unifiedd/orders`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return repairLog(args[0], yes, c.OutOrStdout())
		},
	}
	c.Flags().BoolVarP(&yes, "yes", "y", false, "change the log; without it, only say what would be done")
	return c
}

func repairLog(path string, yes bool, w io.Writer) (err error) {
	if err := checkLog(path); err != nil {
		return err
	}
	r, err := journal.PlanRepair(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	if !r.Needed() {
		fmt.Fprintln(w, "nothing is to be mended")
		return nil
	}
	tellRepair(w, r)
	switch {
	case len(r.Damage) == 0: // the flow's next start mends copies
		return nil
	case !yes:
		return errors.New("nothing was changed (do it with --yes)")
	}
	if err := r.Apply(); err != nil {
		return err
	}
	fmt.Fprintln(w, "done")
	return nil
}

// tellRepair says what is wrong, and what becomes of it.
func tellRepair(w io.Writer, r *journal.Repair) {
	for _, d := range r.Damage {
		fmt.Fprintln(w, "damaged:", d)
	}
	if r.Copies > 0 {
		fmt.Fprintf(w, "%d of the 4 copies of the manifest are not intact: the flow writes them again\n", r.Copies)
	}
	for _, h := range r.Heads {
		fmt.Fprintf(w, "segment %d (%s): its head is made anew; its first record is at position %d\n", h.Segment, h.Name, h.First)
	}
	for _, d := range r.GivenUp {
		if d.First == d.Last {
			fmt.Fprintf(w, "segment %d (%s): nothing of it can be had back; if it is there, it is kept as %s\n", d.First, d.Name, journal.DamagedSuffix)
			continue
		}
		fmt.Fprintf(w, "segments %d to %d: nothing of them can be had back\n", d.First, d.Last)
	}
	if r.Unsure && r.Manifest {
		fmt.Fprintln(w, "the manifest is made anew from the segments: whether others are missing behind them, nothing tells")
	}
	if !r.Manifest {
		return
	}
	for _, g := range r.Gaps {
		fmt.Fprintln(w, g)
	}
	fmt.Fprintf(w, "%d records are lost at most; the log goes on at position %d\n", r.Lost, r.Next)
}
