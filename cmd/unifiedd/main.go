package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/control"
	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/internal/printable"
)

// Exit statuses.
const (
	exitFailed = 1
	exitUsage  = 2
)

func main() {
	os.Stderr = surviving(os.Stderr)
	if os.Getpid() == 1 {
		go func() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }()
		reapOrphans()
	}
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// surviving returns a copy of stderr that can be written to after its reader has gone: the write fails, and that is all. A
// failed write to descriptors 1 and 2 ends a Go program, even if SIGPIPE is ignored (os/signal), and the log's reader must
// not end what it reads about.
func surviving(stderr *os.File) *os.File {
	fd, err := unix.FcntlInt(stderr.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return stderr // it is closed, or there are no descriptors left
	}
	return os.NewFile(uintptr(fd), stderr.Name())
}

// run executes one command line and returns the exit status.
func run(args []string, stdout, stderr io.Writer) int {
	root, ran := newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	unwritten := checkHelp(root)
	cmd, err := root.ExecuteC()
	if err == nil && *unwritten != nil {
		return report(stderr, fmt.Errorf("write standard output: %w", *unwritten))
	}
	if err == nil {
		return 0
	}
	if w, is := errors.AsType[*fs.PathError](err); is && w.Op == "write" && !*ran { // of --version
		return report(stderr, err)
	}
	if !*ran {
		fmt.Fprintf(stderr, "unifiedd: %v\nSee '%s --help'.\n", err, cmd.CommandPath())
		return exitUsage
	}
	return report(stderr, err)
}

// checkHelp makes the error of writing a help text known, which cobra drops.
func checkHelp(root *cobra.Command) (unwritten *error) {
	unwritten = new(error)
	help := root.HelpFunc()
	root.SetHelpFunc(func(c *cobra.Command, args []string) {
		out := c.OutOrStdout()
		c.SetOut(&checkedWriter{out, unwritten})
		help(c, args)
		c.SetOut(out)
	})
	return unwritten
}

// checkedWriter keeps the first error.
type checkedWriter struct {
	io.Writer
	err *error
}

func (w *checkedWriter) Write(b []byte) (int, error) {
	n, err := w.Writer.Write(b)
	if *w.err == nil {
		*w.err = err
	}
	return n, err
}

// statusError ends the program with a status, and with a message if it contains an error.
type statusError struct {
	status int
	err    error
}

func (e *statusError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit status %d", e.status)
	}
	return e.err.Error()
}

func (e *statusError) Unwrap() error { return e.err }

// report prints why a command failed and returns the exit status. It prints mistakes in a
// configuration unchanged, like a compiler's.
func report(stderr io.Writer, err error) int {
	status := exitFailed
	if s := (*statusError)(nil); errors.As(err, &s) {
		if status = s.status; s.err == nil {
			return status
		}
		err = s.err
	}
	here, there := (*config.Errors)(nil), control.ConfigErrors("")
	switch {
	case errors.As(err, &here):
		fmt.Fprintln(stderr, here)
		return status
	case errors.As(err, &there):
		fmt.Fprintln(stderr, there)
		return status
	}
	fmt.Fprintf(stderr, "unifiedd: %s\n", printable.Lines(err.Error()))
	return status
}

// extra are commands of builds for a purpose of their own.
var extra []func() *cobra.Command

// newRoot makes the command line. ran becomes true when a command is understood and begins. An
// error before that is a usage error.
func newRoot() (root *cobra.Command, ran *bool) {
	root = &cobra.Command{
		Use:   "unifiedd",
		Short: "Move data between network, storage and remote memory through memory they share",
		Long: `unifiedd moves data between network cards, disks and the memory of other machines
through one region of memory that all of them use in place.

Start with 'unifiedd doctor', which says what this machine can do.

The exit status is 2 where the command line is wrong, and then nothing was begun; 1 where
the command failed; else 0. A command whose standard output nobody reads any more ends by
SIGPIPE, as other programs do, without a message. If nobody reads standard error, it goes on.`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	capture, replay, export := newCapture(), newReplay(), newExport()
	addVersion(root, capture, replay, export)
	root.AddCommand(
		newCheck(),
		newDoctor(),
		newVersion(),
		newRun(),
		capture,
		replay,
		export,
		newSend(),
		newReceive(),
		newIndex(),
		newLogCommand(),
		newGroup(),
		newOrders(),
		newCluster(),
		newStatus(),
		newStart(),
		newStop(),
		newRestart(),
		newReload(),
		newTop(),
		newTune(),
		newTrace(),
		newBugReport(),
		newDemo(),
	)
	for _, make := range extra {
		root.AddCommand(make())
	}
	ran = new(bool)
	note(root, ran)
	root.SetHelpCommand(newHelp())
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	root.SetFlagErrorFunc(explainValue)
	checkUsage(root)
	return root, ran
}

// note makes every command set ran when it begins.
func note(c *cobra.Command, ran *bool) {
	if begin := c.RunE; begin != nil {
		c.RunE = func(c *cobra.Command, args []string) error {
			*ran = true
			return begin(c, args)
		}
	}
	for _, sub := range c.Commands() {
		note(sub, ran)
	}
}

// addConfig adds the flag that names the configuration file.
func addConfig(c *cobra.Command, file *string, usage string) {
	c.Flags().StringVarP(file, "config", "c", "", usage)
	if err := c.MarkFlagFilename("config", "yaml", "yml"); err != nil {
		panic(err) // the flag was just added
	}
}

// requireConfig makes that flag required.
func requireConfig(c *cobra.Command) {
	if err := c.MarkFlagRequired("config"); err != nil {
		panic(err) // the command has that flag
	}
}
