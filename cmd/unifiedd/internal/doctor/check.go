package doctor

import "fmt"

// State is the result of a check. A greater value is worse.
type State uint8

const (
	// OK: everything is right.
	OK State = iota
	// Unknown: the doctor could not find out, and nothing indicates a fault.
	Unknown
	// Warn: it works, but is slow, loses packets, or behaves unexpectedly.
	Warn
	// Fail: it will not work.
	Fail
)

var stateNames = [...]string{OK: "ok", Unknown: "unknown", Warn: "warn", Fail: "fail"}

// String returns the state's name in JSON: ok, unknown, warn or fail.
func (s State) String() string { return stateNames[s] }

// MarshalText writes the state's name.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads the state's name.
func (s *State) UnmarshalText(text []byte) error {
	for i, name := range stateNames {
		if name == string(text) {
			*s = State(i)
			return nil
		}
	}
	return fmt.Errorf("state %q: it must be ok, unknown, warn or fail", text)
}

// Check is the answer to one question.
type Check struct {
	Name   string `json:"name"` // what was checked; stable
	State  State  `json:"state"`
	Detail string `json:"detail"`           // what was found
	Remedy string `json:"remedy,omitempty"` // the remedy, as a command if there is one
}

// ok, unknown, warn and fail return checks; with adds the remedy.
func ok(name, format string, args ...any) Check {
	return Check{Name: name, Detail: fmt.Sprintf(format, args...)}
}

func unknown(name, format string, args ...any) Check {
	return ok(name, format, args...).as(Unknown)
}

func warn(name, format string, args ...any) Check {
	return ok(name, format, args...).as(Warn)
}

func fail(name, format string, args ...any) Check {
	return ok(name, format, args...).as(Fail)
}

func (c Check) as(s State) Check {
	c.State = s
	return c
}

func (c Check) with(format string, args ...any) Check {
	c.Remedy = fmt.Sprintf(format, args...)
	return c
}
