package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/unifiedd/unifiedd/flows/journal"
	"github.com/unifiedd/unifiedd/internal/pcapng"
	"github.com/unifiedd/unifiedd/internal/ring"
)

func newLogCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "log",
		Short: "Read, verify or repair a log of messages on disk",
		Long: `Read, verify or repair a log that a flow from RDMA to storage writes. PATH is what the names
of its files begin with (to.file of the flow), its device, or one file alone. To read and
to verify, the log may be written meanwhile; only repair --yes writes to it.`,
		Args: cobra.NoArgs,
	}
	c.AddCommand(newLogVerify(), newLogRead(), newLogRepair())
	return c
}

// checkLog returns an error that describes what is at the path, if it is not a log.
func checkLog(path string) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Lstat(path + journal.ManifestSuffix); err == nil {
			return nil // the manifest exists; all segments may be missing
		}
		found, e := pcapng.NewNames(path).List()
		if e == nil && len(found) == 0 {
			e = fmt.Errorf("read log %s: no segment begins with it (name what to.file of the flow says, its device, or one file)", path)
		}
		return e
	}
	if err != nil {
		return fmt.Errorf("read log: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return err
	case info.IsDir():
		return fmt.Errorf("read log %s: it is a directory (name what the names of the log's files begin with)", path)
	case !info.Mode().IsRegular():
		return nil
	}
	if _, err := ring.Find(f, uint64(info.Size())); err == nil {
		return nil // a copy of a device with a ring
	}
	if _, err := pcapng.ReadHead(f, info.Size()); err != nil {
		return fmt.Errorf("read log %s: %w (name what to.file of the flow says, its device, or one file)", path, err)
	}
	return nil
}

func newLogVerify() *cobra.Command {
	return &cobra.Command{
		Use:   "verify PATH",
		Short: "Read a whole log and report what it has and what is missing",
		Long: `Read all of a log, compare every checksum and position, and say what is in each segment.
The exit status is 1 when records between the first and the last are lost, when something
is missing that the log's manifest names, or when the head of a segment cannot be read.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := checkLog(args[0]); err != nil {
				return err
			}
			r, err := journal.Verify(args[0])
			if err != nil {
				return err
			}
			return printReport(c.OutOrStdout(), &r)
		},
	}
}

// printReport prints a line for each segment, and the totals.
func printReport(w io.Writer, r *journal.Report) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "segment\trecords\tbytes\tpositions\tvoid\tdamaged\tholes\tcompleted")
	for i := range r.Segments {
		s := &r.Segments[i]
		fmt.Fprintf(t, "%s\t%d\t%d\t%d-%d\t%d\t%d\t%d\t%s\n", s.Name, s.Records, s.Bytes, s.First, s.Last, s.Void, s.Damaged, s.Holes, completed(s.Completed))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "%d records, %d bytes, from position %d to %d; the next is %d\n", r.Records, r.Bytes, r.First, max(r.Next, 1)-1, r.Next)
	if r.Group {
		fmt.Fprintf(w, "the log is a group's: position %d is committed, and later ones may be; only committed records are read\n", r.Committed)
	}
	for _, g := range r.Gaps {
		fmt.Fprintln(w, g)
	}
	for _, d := range r.Damage {
		fmt.Fprintln(w, "damaged:", d)
	}
	if r.Copies > 0 {
		fmt.Fprintf(w, "%d of the 4 copies of the manifest are not intact, which is no harm (the flow writes them again)\n", r.Copies)
	}
	switch {
	case len(r.Damage) > 0:
		return fmt.Errorf("the log is damaged: the flow does not start on it ('unifiedd log repair' says what can be kept, and mends it)")
	case r.Lost > 0:
		return fmt.Errorf("%d records of the log are lost", r.Lost)
	}
	return nil
}

// completed reports whether a segment's writer completed it.
func completed(yes bool) string {
	if yes {
		return "yes"
	}
	return "no"
}

// logReadFlags are the flags of log read.
type logReadFlags struct {
	from, count uint64
	follow, raw bool
}

func newLogRead() *cobra.Command {
	var f logReadFlags
	c := &cobra.Command{
		Use:   "read PATH",
		Short: "Print the records of a log",
		Long: `Print the records of a log: a line with position, time, session, sequence and length of each, or
with --raw the payloads as they are, one behind the other.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			ctx, stop := untilSignal(c.Context())
			defer stop()
			if err := checkLog(args[0]); err != nil && !f.follow {
				return err
			}
			return readLog(ctx, args[0], f, c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	c.Flags().Uint64Var(&f.from, "from", 0, "begin with the record at this `POSITION`; 0: the oldest there is")
	c.Flags().Uint64Var(&f.count, "count", 0, "end after so many `RECORDS`; 0: do not")
	c.Flags().BoolVarP(&f.follow, "follow", "f", false, "wait for more at the end, until interrupted")
	c.Flags().BoolVar(&f.raw, "raw", false, "print the payloads alone")
	return c
}

// readLog prints records. It reports missing records on standard error, and returns an error at the
// end if there are any.
func readLog(ctx context.Context, path string, f logReadFlags, stdout, stderr io.Writer) (err error) {
	l, err := journal.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	r := l.Reader(f.from)
	defer func() { err = errors.Join(err, r.Close()) }()
	out := bufio.NewWriter(stdout)
	defer func() { err = errors.Join(err, out.Flush()) }()
	damage, err := l.Damage()
	if err != nil {
		return err
	}
	for _, d := range damage {
		fmt.Fprintln(stderr, "damaged:", d)
	}
	lost := len(damage) > 0
	for n := uint64(0); f.count == 0 || n < f.count; n++ {
		rec, err := nextRecord(ctx, r, f.follow, out)
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, context.Canceled):
			return lostSome(lost)
		case skippable(err):
			fmt.Fprintln(stderr, err)
			lost = true
			continue
		case err != nil:
			return err
		}
		if rec.Control() {
			n--
			continue
		}
		if err := printRecord(out, &rec, f.raw); err != nil {
			return err
		}
	}
	return lostSome(lost)
}

// nextRecord returns the next record. It flushes out before it waits.
func nextRecord(ctx context.Context, r *journal.Reader, follow bool, out *bufio.Writer) (journal.Record, error) {
	if !follow {
		rec, err := r.Next()
		return rec, cmp.Or(context.Cause(ctx), err)
	}
	rec, err := r.Poll()
	if !errors.Is(err, io.EOF) {
		return rec, cmp.Or(context.Cause(ctx), err)
	}
	if err := out.Flush(); err != nil {
		return rec, err
	}
	return r.Wait(ctx)
}

// skippable reports whether reading continues after an error.
func skippable(err error) bool {
	_, gap := errors.AsType[*journal.Gap](err)
	_, cut := errors.AsType[*journal.Cut](err)
	return gap || cut
}

func lostSome(lost bool) error {
	if lost {
		return errors.New("records are missing: see above")
	}
	return nil
}

func printRecord(w io.Writer, r *journal.Record, raw bool) (err error) {
	if raw {
		_, err = w.Write(r.Payload)
		return err
	}
	_, err = fmt.Fprintf(w, "%d\t%s\t%016x\t%d\t%d bytes\n", r.Position, time.Unix(0, int64(r.Time)).UTC().Format(time.RFC3339Nano), r.Session, r.Sequence, len(r.Payload))
	return err
}

func newLogRepair() *cobra.Command {
	var yes bool
	c := &cobra.Command{
		Use:   "repair PATH",
		Short: "Repair a damaged log, or print what a repair would give up",
		Long: `Print what is wrong with a log on which a flow does not start, what can be kept, and what
has to be given up. With --yes, repair the log as well. The flow must not run.

A repair rebuilds damaged heads of segments, and the manifest. A file from which no record can
be recovered stays, under another name (.damaged). No position is used twice: if the last
position of the log is not known, the log continues after the highest one that it can have had.

The exit status is 0 if the log needs no repair, or was repaired. Otherwise it is 1.`,
		Example: `  unifiedd log repair /var/lib/unifiedd/orders
  unifiedd log repair --yes /var/lib/unifiedd/orders`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return repairLog(args[0], yes, c.OutOrStdout())
		},
	}
	c.Flags().BoolVarP(&yes, "yes", "y", false, "repair the log; without it, only print what a repair would do")
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
		fmt.Fprintln(w, "nothing needs repair")
		return nil
	}
	tellRepair(w, r)
	switch {
	case len(r.Damage) == 0: // the flow repairs the manifest's copies at its next start
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

// tellRepair prints what is wrong with a log, and what a repair would do.
func tellRepair(w io.Writer, r *journal.Repair) {
	for _, d := range r.Damage {
		fmt.Fprintln(w, "damaged:", d)
	}
	if r.Copies > 0 {
		fmt.Fprintf(w, "%d of the 4 copies of the manifest are not intact: the flow writes them again\n", r.Copies)
	}
	for _, h := range r.Heads {
		fmt.Fprintf(w, "segment %d (%s): its head is rebuilt; its first record is at position %d\n", h.Segment, h.Name, h.First)
	}
	for _, d := range r.GivenUp {
		if d.First == d.Last {
			fmt.Fprintf(w, "segment %d (%s): no record can be recovered; if its file exists, it is kept as %s\n", d.First, d.Name, journal.DamagedSuffix)
			continue
		}
		fmt.Fprintf(w, "segments %d to %d: no record can be recovered\n", d.First, d.Last)
	}
	if r.Unsure && r.Manifest {
		fmt.Fprintln(w, "the manifest is rebuilt from the segments: whether later segments are missing is not known")
	}
	if !r.Manifest {
		return
	}
	for _, g := range r.Gaps {
		fmt.Fprintln(w, g)
	}
	fmt.Fprintf(w, "at most %d records are lost; the log continues at position %d\n", r.Lost, r.Next)
}
