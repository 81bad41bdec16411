package filter

import (
	"errors"
	"fmt"
	"strings"
)

// ErrTooLarge is matched by the errors for expressions that exceed [MaxText],
// [MaxPrimitives], [MaxDepth], or the reach of a BPF jump.
var ErrTooLarge = errors.New("filter too large")

// ErrRejectsAll is matched by the errors for expressions that no packet satisfies, as far as [Parse] sees it.
var ErrRejectsAll = errors.New("expression rejects all packets")

// rejectsAllText is tcpdump's text for such an expression, and the usual cause.
const rejectsAllText = "expression rejects all packets: its tests contradict each other, or test fields that packets of this link type do not have"

// Error is a mistake in an expression, with its place.
type Error struct {
	offset   int
	problem  string
	expected string
	suggest  string
	cause    error
}

// Offset is the byte in the expression at which the mistake was found.
func (e *Error) Offset() int { return e.offset }

// Unwrap returns [ErrTooLarge] or [ErrRejectsAll] if that is the reason, else nil.
func (e *Error) Unwrap() error { return e.cause }

// Error returns the place, the problem, what was expected, and a suggestion.
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "filter: at byte %d: %s", e.offset, e.problem)
	if e.expected != "" {
		fmt.Fprintf(&b, "; expected %s", e.expected)
	}
	if e.suggest != "" {
		fmt.Fprintf(&b, "; did you mean %q?", e.suggest)
	}
	return b.String()
}

func tooLarge(offset int, problem string) *Error {
	return &Error{offset: offset, problem: problem, cause: ErrTooLarge}
}
