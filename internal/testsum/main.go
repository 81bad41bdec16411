// Testsum reads the output of go test -json on standard input and prints what
// a person wants of it: one line for each package, everything a failed test or
// build printed, every skip with its reason, the slowest tests, and as its last
// line
//
//	N passed, N failed, N skipped
//
// Subtests and benchmarks count like tests. A package that fails without a failed test of its
// own (it does not build, panics or exits) counts as one failure, and so does a
// test that never ended. Lines that are not JSON are passed on, so several runs
// with headings between them may be sent through one testsum.
//
// With -again COMMAND a few tests that failed have two more runs, alone: the machine they
// failed on may have been busy with the tests beside them. COMMAND is given the package
// and the test, and prints events like go test's. Those that pass are counted as passed,
// and listed with what they printed when they failed.
//
// It exits with status 1 when anything failed or no test ran at all, and, where
// CI=true, when a test was skipped for a reason no -allow-skip expression
// matches.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"regexp"
)

func main() {
	var allowed []*regexp.Regexp
	flag.Func("allow-skip", "regular `expression` for \"package.Test: reason\" of skips that CI accepts (repeatable)", func(s string) error {
		re, err := regexp.Compile(s)
		allowed = append(allowed, re)
		return err
	})
	slowest := flag.Int("slowest", 10, "how many of the slowest tests to list")
	command := flag.String("again", "", "`command` that runs a failed test again, given its package and name")
	flag.Parse()

	s := newSummary(os.Stdout)
	if err := s.read(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "testsum: read the test events:", err)
		os.Exit(1)
	}
	if *command != "" {
		s.again(func(pkg, test string) ([]byte, error) { return exec.Command(*command, pkg, test).Output() })
	}
	var strict []*regexp.Regexp
	if os.Getenv("CI") == "true" {
		strict = append(allowed, regexp.MustCompile(`^$`))
	}
	if !s.report(*slowest, strict) {
		os.Exit(1)
	}
}
