package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

// report prints the result of all runs and reports whether it is good. If strict, a skip must match one of the
// expressions in allowed.
func (s *summary) report(slowest int, allowed []*regexp.Regexp, strict bool) bool {
	refused := s.listSkips(allowed, strict)
	s.listSlowest(slowest)
	s.listQuarantine()
	list(s.out, "Failed:", s.failed)
	none := s.passed+len(s.failed)+len(s.quarantined)+len(s.skipped) == 0
	if none {
		fmt.Fprintln(s.out, "\nNo test ran.")
	}
	if len(refused) > 0 {
		fmt.Fprintf(s.out, "\n%d tests were skipped that must run here: %s\n", len(refused), names(refused))
	}
	fmt.Fprintf(s.out, "\n%d passed, %d failed, %d skipped\n", s.passed, len(s.failed), len(s.skipped))
	return len(s.failed) == 0 && len(refused) == 0 && !none
}

// listQuarantine prints all tests whose failures do not count, and the failures of this run.
func (s *summary) listQuarantine() {
	if len(s.quarantine) > 0 {
		fmt.Fprintln(s.out, "\nIn quarantine, so that a failure does not count:")
	}
	for _, line := range slices.Sorted(maps.Values(s.quarantine)) {
		fmt.Fprintf(s.out, "  %s\n", line)
	}
	list(s.out, "Failed in quarantine:", s.quarantined)
}

// listSkips counts the skips that are allowed by what the expressions match, prints the others, one line for each
// reason, and returns those that strict refuses.
func (s *summary) listSkips(allowed []*regexp.Regexp, strict bool) (refused []result) {
	if len(s.skipped) > 0 {
		fmt.Fprintln(s.out, "\nSkipped:")
	}
	counts := make(map[string]int)
	var reasons []string
	tests := make(map[string][]result) // by reason
	for _, r := range s.skipped {
		if kind := kindOf(r, allowed); kind != "" {
			counts[kind]++
			continue
		}
		reason := r.reason
		if strict {
			refused = append(refused, r)
			reason += "  [must run here]"
		}
		if tests[reason] == nil {
			reasons = append(reasons, reason)
		}
		tests[reason] = append(tests[reason], r)
	}
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		fmt.Fprintf(s.out, "  %4d %s\n", counts[kind], kind)
	}
	for _, reason := range reasons {
		fmt.Fprintf(s.out, "  %s: %s\n", names(tests[reason]), reason)
	}
	return refused
}

// kindOf returns what one of the expressions matches in a skip, without punctuation at its ends, or "".
func kindOf(r result, allowed []*regexp.Regexp) string {
	for _, re := range allowed {
		if kind := re.FindString(r.name() + ": " + r.reason); kind != "" {
			return strings.Trim(kind, ": ")
		}
	}
	return ""
}

// names returns the names of tests, each with its package if that differs from the one before.
func names(tests []result) string {
	var all []string
	for i, r := range tests {
		if i > 0 && r.pkg == tests[i-1].pkg {
			all = append(all, r.test)
		} else {
			all = append(all, r.name())
		}
	}
	return strings.Join(all, ", ")
}

func (s *summary) listSlowest(n int) {
	slices.SortStableFunc(s.ended, func(a, b result) int { return cmp.Compare(b.elapsed, a.elapsed) })
	shown := s.ended[:min(n, len(s.ended))]
	if len(shown) > 0 {
		fmt.Fprintln(s.out, "\nSlowest:")
	}
	for _, r := range shown {
		fmt.Fprintf(s.out, "  %8v  %s\n", r.elapsed.Round(10*time.Millisecond), r.name())
	}
}

// How much of a failed test's output is repeated at the end: its own messages, then its last lines, and how much of a line.
const (
	ownLines  = 8
	lastLines = 15
	lineLimit = 400
)

// own is a message of a test itself, or a line of a dying kernel that says why; the rest is often the log of a daemon.
var own = regexp.MustCompile(`_test\.go:\d+: |\] (BUG|Oops|Kernel panic|RIP: 0010)`)

// excerpt returns the lines of a failed test's output that say most.
func excerpt(text string) (lines []string) {
	all := strings.Split(text, "\n")
	tail := max(0, len(all)-lastLines)
	for _, line := range all[:tail] {
		if len(lines) < ownLines && own.MatchString(line) && !strings.Contains(line, " level=") {
			lines = append(lines, line)
		}
	}
	lines = append(lines, all[tail:]...)
	for i, line := range lines {
		if len(line) > lineLimit {
			lines[i] = line[:lineLimit] + " …"
		}
	}
	return lines
}

// list prints failures, each with an excerpt of its output, since the full output may be far above.
func list(out io.Writer, heading string, failures []failure) {
	if len(failures) > 0 {
		fmt.Fprintf(out, "\n%s\n", heading)
	}
	for _, f := range failures {
		fmt.Fprintf(out, "  %s\n", f.name)
		for _, line := range excerpt(f.text) {
			fmt.Fprintf(out, "    | %s\n", line)
		}
	}
}
