// Testsum reads the output of go test -json on standard input and prints a summary: one line for
// each package, the output of each failed test or build, every skip with its reason, the slowest
// tests, and as the last line
//
//	N passed, N failed, N skipped
//
// Subtests and benchmarks count like tests. A package that fails without a failed test (it does not
// build, panics or exits) counts as one failure, and so does a test that never ended. Lines that
// are not JSON are passed on, so that one testsum can read several runs with headings between them.
//
// With -again COMMAND a few failed tests run up to two more times, alone: the machine may have been
// busy with concurrent tests. COMMAND gets the package and the test, and prints events like those
// of go test. A test that then passes counts as passed, and is listed with its output from the
// failure.
//
// It exits with status 1 if anything failed or no test ran, and, if CI=true, if a test was skipped
// for a reason that no -allow-skip expression matches.
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
