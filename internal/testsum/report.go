package main

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// report prints what the whole of the runs came to and reports whether it is
// good. strict is nil where skips are accepted; otherwise a skip must match one
// of it.
func (s *summary) report(slowest int, strict []*regexp.Regexp) bool {
	refused := s.listSkips(strict)
	s.listSlowest(slowest)
	s.listFailed()
	none := s.passed+len(s.failed)+len(s.skipped) == 0
	if none {
		fmt.Fprintln(s.out, "\nNo test ran.")
	}
	if refused > 0 {
		fmt.Fprintf(s.out, "\n%d tests were skipped that must run here.\n", refused)
	}
	fmt.Fprintf(s.out, "\n%d passed, %d failed, %d skipped\n", s.passed, len(s.failed), len(s.skipped))
	return len(s.failed) == 0 && refused == 0 && !none
}

// listSkips prints each skip and returns how many of them strict refuses.
func (s *summary) listSkips(strict []*regexp.Regexp) (refused int) {
	if len(s.skipped) > 0 {
		fmt.Fprintln(s.out, "\nSkipped:")
	}
	for _, r := range s.skipped {
		line := r.name + ": " + r.reason
		note := ""
		if strict != nil && !slices.ContainsFunc(strict, func(re *regexp.Regexp) bool { return re.MatchString(line) }) {
			refused++
			note = "  [must run here]"
		}
		fmt.Fprintf(s.out, "  %s%s\n", line, note)
	}
	return refused
}

func (s *summary) listSlowest(n int) {
	slices.SortStableFunc(s.ended, func(a, b result) int { return cmp.Compare(b.elapsed, a.elapsed) })
	shown := s.ended[:min(n, len(s.ended))]
	if len(shown) > 0 {
		fmt.Fprintln(s.out, "\nSlowest:")
	}
	for _, r := range shown {
		fmt.Fprintf(s.out, "  %8v  %s\n", r.elapsed.Round(10*time.Millisecond), r.name)
	}
}

// lastLines is how much of what a failed test printed is said again at the end.
const lastLines = 15

// listFailed prints each failure with the end of its output, which may be far above.
func (s *summary) listFailed() {
	if len(s.failed) > 0 {
		fmt.Fprintln(s.out, "\nFailed:")
	}
	for _, f := range s.failed {
		fmt.Fprintf(s.out, "  %s\n", f.name)
		lines := strings.Split(f.text, "\n")
		for _, line := range lines[max(0, len(lines)-lastLines):] {
			fmt.Fprintf(s.out, "    | %s\n", line)
		}
	}
}
