package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// maxAgain is how many failed tests may run again, of more than 8000. If more fail, the cause is not
// an accident.
const maxAgain = 6

// again repeats the failed tests, if they are few and other load may have been the cause of each
// failure. Those that pass move from s.failed to s.passing.
func (s *summary) again(run func(pkg, test string) (events []byte, err error)) {
	whole := s.topLevel()
	if len(whole) == 0 || len(whole) > maxAgain || slices.ContainsFunc(s.failed, failure.certain) {
		return
	}
	for _, r := range whole {
		fmt.Fprintf(s.out, "== again, alone: %s\n", r.name())
		if s.passes(run, r) {
			s.forgive(r)
		}
	}
}

// topLevel are the tests that failed, without their subtests.
func (s *summary) topLevel() (tests []result) {
	for _, f := range s.failed {
		test, _, _ := strings.Cut(f.test, "/")
		if r := (result{pkg: f.pkg, test: test}); !slices.Contains(tests, r) {
			tests = append(tests, r)
		}
	}
	return tests
}

// certain reports whether no second run can disprove the failure. That holds for a package that
// does not build, for a panic, a race, and a test that never ends. It also holds for a benchmark,
// which a second run does not cover.
func (f failure) certain() bool {
	return !strings.HasPrefix(f.test, "Test") ||
		strings.Contains(f.text, "DATA RACE") || strings.Contains(f.text, "panic: ")
}

// passes runs a test and reports whether it passed twice, and never failed.
func (s *summary) passes(run func(pkg, test string) ([]byte, error), r result) bool {
	events, err := run(r.pkg, r.test)
	if err != nil {
		fmt.Fprintf(s.out, "failed again: %v\n", err)
	}
	again := newSummary(s.out)
	return again.read(bytes.NewReader(events)) == nil && err == nil && len(again.failed) == 0 &&
		among(again.ended, r)-among(again.skipped, r) >= 2
}

// among counts how often a test is in results.
func among(results []result, r result) (n int) {
	for _, e := range results {
		if e.pkg == r.pkg && e.test == r.test {
			n++
		}
	}
	return n
}

// forgive moves the failures of a test and its subtests to the passed ones.
func (s *summary) forgive(r result) {
	left := s.failed[:0:0]
	for _, f := range s.failed {
		if f.pkg == r.pkg && (f.test == r.test || strings.HasPrefix(f.test, r.test+"/")) {
			s.passing = append(s.passing, f)
			s.passed++
		} else {
			left = append(left, f)
		}
	}
	s.failed = left
}
