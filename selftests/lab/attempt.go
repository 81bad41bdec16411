package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/unifiedd/unifiedd/selftests/lab/vm"
)

// mostGuests is how many guests the tests of one package may use.
const mostGuests = 4

// attempt is a run of a package's tests, or of those that earlier attempts left, in one guest. As an io.Writer it takes
// the output of the test program, and finds which tests ended.
type attempt struct {
	suite
	plain bool // the output is not converted to events

	events   bytes.Buffer // of go test -json
	line     []byte       // the end of the output, if it has no newline yet
	ended    map[string]bool
	timedOut bool // the test program's own limit
}

// testEnd matches a line that says that a test ended, but not a subtest. In the form for test2json it begins with a ^V.
var testEnd = regexp.MustCompile(`^\x16?--- (?:PASS|FAIL|SKIP): (\w+) \(`)

// Write reads output of the test program.
func (a *attempt) Write(b []byte) (int, error) {
	a.line = append(a.line, b...)
	for {
		line, rest, whole := bytes.Cut(a.line, []byte("\n"))
		if !whole {
			return len(b), nil
		}
		a.read(line)
		a.line = rest
	}
}

func (a *attempt) read(line []byte) {
	if bytes.HasPrefix(line, []byte("panic: test timed out after ")) {
		a.timedOut = true
	}
	if m := testEnd.FindSubmatch(line); m != nil {
		if a.ended == nil {
			a.ended = map[string]bool{}
		}
		a.ended[string(m[1])] = true
	}
}

// next returns the tests for another attempt after this one ended with err, and whether there should be one. After a
// fault of the guest or a time-out, those that had not ended run again. If all had ended, all run again, since the
// kernel's complaint may come from any of them. A second fault before one more test has ended is a failure.
func (a *attempt) next(err error) (suite, bool) {
	next := a.suite
	if !guestFault(err) && !(a.timedOut && err != nil) {
		return next, false
	}
	left := without(a.tests, a.ended)
	progress := len(left) > 0 && len(left) < len(a.tests)
	if len(left) > 0 {
		next.tests = left
	}
	next.retries++
	return next, a.retries == 0 || progress
}

// keep writes those events of an attempt that count though another attempt follows: the events of tests that do not
// run again.
func (a *attempt) keep(out io.Writer) error {
	if a.plain {
		return nil
	}
	for line := range bytes.Lines(a.events.Bytes()) {
		var e event
		if err := json.Unmarshal(line, &e); err != nil {
			return fmt.Errorf("read an event of %s: %w", a.ImportPath, err)
		}
		test, _, _ := strings.Cut(e.Test, "/")
		if !a.ended[test] {
			continue
		}
		if _, err := out.Write(line); err != nil {
			return fmt.Errorf("write an event: %w", err)
		}
	}
	return nil
}

// without returns the names that are not in a set.
func without(names []string, set map[string]bool) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return set[name] })
}

// guestFault reports whether the guest was at fault, and not, or not only, a test: it hung or ended, or its kernel died or
// wrote a complaint.
func guestFault(err error) bool {
	return errors.Is(err, vm.ErrKernel) || errors.Is(err, errKernel) || errors.Is(err, vm.ErrHung) || errors.Is(err, vm.ErrLost)
}
