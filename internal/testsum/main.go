// Testsum reads the output of go test -json on standard input and prints a summary: one line for
// each package, the output of each failed test or build, how many tests were skipped for a reason that
// an -allow-skip expression matches, every other skip with its reason, the slowest tests, and as the last line
//
//	N passed, N failed, N skipped
//
// Subtests and benchmarks count like tests. A package that fails without a failed test (it does not
// build, panics or exits) counts as one failure, and so does a test that never ended. Lines that
// are not JSON are passed on, so that one testsum can read several runs with headings between them.
//
// With -quarantine FILE the failures of tests that the file lists do not count. Each line of the file is the package
// and name of a test, and the issue that will mend it. The summary prints the list.
//
// It exits with status 1 if anything failed or no test ran, and, if CI=true, if a test was skipped
// for a reason that no -allow-skip expression matches.
package main

import (
	"flag"
	"fmt"
	"os"
	"regexp"
)

func main() {
	var allowed []*regexp.Regexp
	flag.Func("allow-skip", "regular `expression` for \"package.Test: reason\" of skips that are only counted, and that CI accepts (repeatable)", func(s string) error {
		re, err := regexp.Compile(s)
		allowed = append(allowed, re)
		return err
	})
	slowest := flag.Int("slowest", 10, "how many of the slowest tests to list")
	quarantine := flag.String("quarantine", "", "`file` that lists tests whose failures do not count")
	flag.Parse()

	s := newSummary(os.Stdout)
	err := s.readQuarantine(*quarantine)
	if err == nil {
		err = s.read(os.Stdin)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "testsum:", err)
		os.Exit(1)
	}
	if !s.report(*slowest, allowed, os.Getenv("CI") == "true") {
		os.Exit(1)
	}
}
