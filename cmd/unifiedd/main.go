package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/control"
	"github.com/unifiedd/unifiedd/flows/config"
)

// Exit statuses.
const (
	exitFailed = 1
	exitUsage  = 2
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run executes one command line and returns the exit status.
func run(args []string, stdout, stderr io.Writer) int {
	root, ran := newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteC()
	if err == nil {
		return 0
	}
	if !*ran {
		fmt.Fprintf(stderr, "unifiedd: %v\nSee '%s --help'.\n", err, cmd.CommandPath())
		return exitUsage
	}
	return report(stderr, err)
}

// statusError ends the program with a status, and with a message if there is an
// error in it.
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

// report prints why a command did not succeed, and returns the exit status.
// Mistakes in a configuration are printed as they are, like a compiler's.
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
	fmt.Fprintf(stderr, "unifiedd: %v\n", err)
	return status
}
