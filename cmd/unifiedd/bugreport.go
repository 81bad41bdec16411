package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/bugreport"
	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/doctor"
	"github.com/unifiedd/unifiedd/flows/trace"
	"github.com/unifiedd/unifiedd/internal/newfile"
	build "github.com/unifiedd/unifiedd/internal/version"
)

// usualConfig is the configuration of the systemd unit.
const usualConfig = "/etc/unifiedd/unifiedd.yaml"

func newBugReport() *cobra.Command {
	o := bugreport.Options{Load: loadConfig, Print: printRawStatus, Time: time.Now()}
	var output string
	var lines uint16
	c := &cobra.Command{
		Use:   "report [-o FILE] [--redact]",
		Short: "Collect what a bug report needs in one archive",
		Long: `Collect what a bug report needs in one archive (tar.gz): the version, the doctor's
report, the daemon's status and metrics, its configuration, its rings and queues, facts
about the kernel, the drivers and the devices, and the last lines of logs.

It also works while the daemon is down or does not answer: contents.txt in the archive
then says so, and what else is missing.

Secrets are left out: keys, passwords and tokens, of the configuration too, whose
comments are left out as well. With --redact, IP and MAC addresses, GIDs and the name of
this host are replaced, the same one by the same number in every file. Look through the
archive before you publish it: it names your interfaces, files and flows.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			o.Lines = int(lines)
			return writeReport(c.Context(), c.OutOrStdout(), o, output)
		},
	}
	c.Flags().StringVarP(&output, "output", "o", "", "write the archive to `FILE`; - is standard output (default unifiedd-report-TIME.tar.gz here)")
	c.Flags().BoolVar(&o.Redact, "redact", false, "replace addresses and the host's name")
	c.Flags().StringVar(&o.Unit, "unit", "unifiedd.service", "systemd `UNIT` whose journal to add; empty: none")
	c.Flags().StringArrayVar(&o.Logs, "log", nil, "log `FILE` whose last lines to add, may be repeated")
	c.Flags().Uint16Var(&lines, "lines", 2000, "the `NUMBER` of lines of each log")
	addConfig(c, &o.Config, "configuration `FILE` of the daemon (default "+usualConfig+", if there is one)")
	addSocket(c, &o.Socket)
	return c
}

// writeReport writes a report to a file, or to standard output.
func writeReport(ctx context.Context, stdout io.Writer, o bugreport.Options, output string) error {
	if o.Config == "" {
		if _, err := os.Stat(usualConfig); !errors.Is(err, fs.ErrNotExist) {
			o.Config = usualConfig
		}
	} else if _, err := os.Stat(o.Config); err != nil {
		return fmt.Errorf("read configuration: %w", err)
	}
	for _, name := range o.Logs {
		if _, err := os.Stat(name); err != nil {
			return fmt.Errorf("read log: %w", err)
		}
	}
	o.Version = build.Get(version).Version
	traces := trace.DirectoryOf(o.Socket)
	if o.Config != "" {
		if c, err := loadConfig(o.Config); err == nil { // else check.txt says what is wrong
			traces = cmp.Or(c.Trace.Directory, traces)
		}
	}
	o.First = []bugreport.Item{
		{Name: "version.txt", Collect: printVersion}, {Name: "doctor.txt", Collect: doctorItem(o.Config)},
		{Name: "trace.txt", Collect: traceItem(traces)}, {Name: "trace-previous.txt", Collect: traceItem(trace.Previous(traces))},
	}
	if output == "-" {
		if isTerminal(stdout) {
			return errors.New("the archive is not for a terminal (give -o FILE, or redirect the output)")
		}
		_, err := bugreport.Write(ctx, stdout, o)
		return err
	}
	if output == "" {
		output = bugreport.Name(o.Time) + ".tar.gz"
	}
	f, err := newfile.Replace(output, 0o600)
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	r, err := bugreport.Write(ctx, f, o)
	if err != nil {
		return errors.Join(fmt.Errorf("write the report: %w", err), f.Discard())
	}
	if err := f.Commit(); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return summarizeReport(stdout, output, r)
}

// summarizeReport says what a report has.
func summarizeReport(w io.Writer, output string, r bugreport.Result) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n", output, plural(r.Files, "file"))
	if !r.Answers {
		fmt.Fprintf(&b, "The daemon did not answer, and the report says so: %v\n", r.Why)
	}
	if len(r.Failed) > 0 {
		fmt.Fprintf(&b, "Not complete, and contents.txt says why: %s\n", strings.Join(r.Failed, ", "))
	}
	fmt.Fprintln(&b, "Look through it before you publish it.")
	_, err := io.WriteString(w, b.String())
	return err
}

func printVersion(_ context.Context, w io.Writer) error {
	fmt.Fprintln(w, build.Get(version))
	return printJSON(w, build.Get(version))
}

// tracedEvents is how many events of each flow a report has.
const tracedEvents = 200

// traceItem returns the collector of a flight recorder's files.
func traceItem(dir string) func(context.Context, io.Writer) error {
	return func(_ context.Context, w io.Writer) error { return writeTrace(w, dir, "", tracedEvents, false) }
}

// doctorItem returns the collector of the doctor's report, by the needs of the configuration if it
// is valid.
func doctorItem(file string) func(context.Context, io.Writer) error {
	return func(ctx context.Context, w io.Writer) error {
		o := doctor.Options{Taken: takenByDaemon(ctx)}
		if file != "" {
			c, err := loadConfig(file)
			if err != nil {
				fmt.Fprintf(w, "The configuration is not valid, or cannot be read: see check.txt. This is measured by the defaults.\n\n")
			} else {
				o.Config = c
			}
		}
		return doctor.Examine(o).Table(w, false)
	}
}
