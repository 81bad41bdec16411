package bench

import (
	"cmp"
	"fmt"
	"os"
	"strconv"
	"time"
)

// Form says how long to measure.
type Form struct {
	Name   string
	Rounds int           // pairs of each case
	Span   time.Duration // of each run
}

// The forms. Tests use the short one, which shows that everything works and is no measurement.
var (
	Short = Form{"short", 1, 200 * time.Millisecond}
	Usual = Form{"usual", 9, time.Second}
	Long  = Form{"long", 15, 2500 * time.Millisecond}
)

// FormVariable is the environment variable that names the form. RoundsVariable overrides the form's number of
// rounds.
const (
	FormVariable   = "UNIFIEDD_BENCH"
	RoundsVariable = "UNIFIEDD_BENCH_ROUNDS"
)

// WantedForm returns the requested form; the default is the short one.
func WantedForm() (Form, error) {
	name := cmp.Or(os.Getenv(FormVariable), Short.Name)
	for _, f := range []Form{Short, Usual, Long} {
		if f.Name == name {
			return f.wantedRounds()
		}
	}
	return Form{}, fmt.Errorf("%s=%s: it must be %s, %s or %s", FormVariable, name, Short.Name, Usual.Name, Long.Name)
}

// wantedRounds returns the form with the requested number of rounds. The short form does not
// change.
func (f Form) wantedRounds() (Form, error) {
	text := os.Getenv(RoundsVariable)
	if text == "" || f == Short {
		return f, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return Form{}, fmt.Errorf("%s=%s: it must be a number of rounds", RoundsVariable, text)
	}
	f.Rounds = n
	return f, nil
}
