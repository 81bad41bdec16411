package main

import (
	"io"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/doctor"
)

func newDoctor() *cobra.Command {
	var (
		o      doctor.Options
		file   string
		asJSON bool
	)
	c := &cobra.Command{
		Use:   "doctor [-i IFACE]... [--disk PATH]... [-c FILE]",
		Short: "Report what this machine can do, what is missing, and the remedy",
		Long: `Report what this machine can do, what is missing, and the remedy.

Features are tried, on loopback and with files that never get a name; nothing
stays behind. With a configuration, its needs are the measure, and for the unit of
systemd that runs it, what that unit's user may do. The exit status is 1 if something
fails; warnings do not count.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) (err error) {
			if file != "" {
				if o.Config, err = loadConfig(file); err != nil {
					return err
				}
				o.File = file
			}
			o.Taken = takenByDaemon(c.Context())
			return examine(c.OutOrStdout(), o, asJSON)
		},
	}
	c.Flags().StringArrayVarP(&o.Interfaces, "interface", "i", nil, "`IFACE` to examine, may be repeated (default all but loopback)")
	completeInterfaceFlag(c, "interface")
	c.Flags().StringArrayVar(&o.Disks, "disk", nil, "file, directory or block device (`PATH`) to examine, may be repeated")
	addConfig(c, &file, "measure by the needs of the configuration `FILE`")
	addJSON(c, &asJSON)
	return c
}

// examine prints the doctor's report. A failed check sets the exit status and prints no further message.
func examine(w io.Writer, o doctor.Options, asJSON bool) error {
	report := doctor.Examine(o)
	var err error
	if asJSON {
		err = printJSON(w, report)
	} else {
		err = report.Table(w, isTerminal(w) && os.Getenv("NO_COLOR") == "")
	}
	if err == nil && report.State == doctor.Fail {
		err = &statusError{status: exitFailed}
	}
	return err
}

// isTerminal reports whether w is a terminal, so that a person reads the output.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
