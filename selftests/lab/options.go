package main

import (
	"flag"
	"fmt"
	"strings"
	"time"

	"github.com/unifiedd/unifiedd/selftests/lab/archive"
)

// options are the options of the command line.
type options struct {
	line   archive.Line
	cmd    string
	cmd2   string
	run    string
	record string
	append string
	json   bool
	short  bool
	update bool
	nodes  int
	limit  time.Duration
	// packages are those whose tests run; none means all packages with tests.
	packages []string
}

func parse(args []string) (options, error) {
	var o options
	var kernel string
	f := flag.NewFlagSet("lab", flag.ContinueOnError)
	f.StringVar(&kernel, "kernel", "", "the `line` of kernels: "+lineNames()+"; the first is the default")
	f.StringVar(&o.cmd, "cmd", "", "a shell `command` to run instead of the tests")
	f.StringVar(&o.cmd2, "cmd2", "", "a shell `command` for a second guest on the same link, at the same time")
	f.StringVar(&o.run, "run", "", "run only tests that match the `expression`; what is behind a slash is for those inside them")
	f.BoolVar(&o.short, "short", false, "run the short form of tests that have one")
	f.StringVar(&o.record, "record", "", "a `directory` whose file disk is one more disk of the guest; what is written to it is recorded in the file log there; needs -cmd")
	f.StringVar(&o.append, "append", "", "`words` behind those on the kernel's command line, such as idle=poll")
	f.BoolVar(&o.json, "json", false, "print test events as go test -json does")
	f.BoolVar(&o.update, "update", false, "only fetch the newest emulator and kernels, even where there are some")
	f.IntVar(&o.nodes, "nodes", 1, "NUMA nodes of the guest, 1 or 2")
	f.DurationVar(&o.limit, "limit", 10*time.Minute, "how long a command, or the tests of a package, may take")
	if err := f.Parse(args); err != nil {
		return o, fmt.Errorf("%w: %w", errUsage, err)
	}
	o.packages = f.Args()
	line, err := archive.ParseLine(kernel)
	if err == nil && (o.nodes < 1 || o.nodes > 2) {
		err = fmt.Errorf("a guest has 1 or 2 nodes, not %d", o.nodes)
	}
	if err == nil && o.limit <= margin {
		err = fmt.Errorf("a limit of %v is too short, it must be over %v", o.limit, margin)
	}
	if err == nil && o.cmd2 != "" && o.cmd == "" {
		err = fmt.Errorf("-cmd2 needs -cmd")
	}
	if err == nil && o.record != "" && (o.cmd == "" || o.cmd2 != "") {
		err = fmt.Errorf("-record needs -cmd, and no -cmd2")
	}
	if err != nil {
		return o, fmt.Errorf("%w: %w", errUsage, err)
	}
	o.line = line
	return o, nil
}

func lineNames() string {
	var names []string
	for _, l := range archive.Lines() {
		names = append(names, l.Name)
	}
	return strings.Join(names, ", ")
}
