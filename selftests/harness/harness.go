// Package harness has the parts that the programs unified-xdp-test, unified-nvme-test,
// unified-rdma-test, unified-flow-test and unified-tick-test share: the command line and exit status, the region and
// the cleanup at the end, the process's clocks, the contents of messages, and the output of
// results.
//
// Exit status 0 is success and --help, 1 is work that failed, and 2 a mistake on the command line.
// Errors are one line on standard error after the program's name.
package harness

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
)

// Main runs a program and exits with its status. An interrupt or SIGTERM ends the context;
// a second one ends the program at once.
func Main(run func(ctx context.Context, args []string, stdout, stderr io.Writer) int) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// Status runs work and returns the exit status. err is the error of the command line. If it is not
// nil, the command line was wrong or asked for help, and Status does not run work.
func Status(name string, stderr io.Writer, err error, work func() error) int {
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", name, err)
		return 2
	}
	if err := work(); err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", name, err)
		return 1
	}
	return 0
}

// Parse reads the options that define defines, before, between and after the arguments, with one
// dash or two. For --help it prints usage and the options, and returns flag.ErrHelp. The returned
// set has the other arguments, and the options that were given.
func Parse(name, usage string, args []string, stderr io.Writer, define func(*flag.FlagSet)) (*pflag.FlagSet, error) {
	defined := flag.NewFlagSet(name, flag.ContinueOnError)
	define(defined)
	fs := pflag.NewFlagSet(name, pflag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Usage = func() {}
	fs.AddGoFlagSet(defined)
	err := fs.Parse(twoDashes(args))
	if errors.Is(err, pflag.ErrHelp) {
		fmt.Fprintf(stderr, "%s%s", usage, fs.FlagUsages())
		return fs, flag.ErrHelp
	}
	if err != nil {
		err = fmt.Errorf("%w (--help lists the options)", err)
	}
	return fs, err
}

// twoDashes adds the second dash to options with one dash and more than one letter. Without it they
// would be several options of one letter.
func twoDashes(args []string) []string {
	all := slices.Clone(args)
	for i, arg := range all {
		if arg == "--" {
			break
		}
		name, one := strings.CutPrefix(arg, "-")
		name, _, _ = strings.Cut(name, "=")
		if one && len(name) > 1 && name[0] != '-' && (name == "help" || name[0] < '0' || name[0] > '9') {
			all[i] = "-" + arg
		}
	}
	return all
}

// Given returns the names of the options that were on the command line.
func Given(fs *pflag.FlagSet) map[string]bool {
	given := make(map[string]bool)
	fs.Visit(func(f *pflag.Flag) { given[f.Name] = true })
	return given
}
