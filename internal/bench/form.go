package bench

import (
	"cmp"
	"fmt"
	"os"
	"time"
)

// Form says how long to measure.
type Form struct {
	Name   string
	Rounds int           // pairs of each case
	Span   time.Duration // of each run
}

// The forms. Tests run the short one, which shows that everything works and
// measures nothing.
var (
	Short = Form{"short", 1, 200 * time.Millisecond}
	Usual = Form{"usual", 9, time.Second}
	Long  = Form{"long", 15, 2500 * time.Millisecond}
)

// FormVariable is the environment variable that names the form.
const FormVariable = "UNIFIEDD_BENCH"

// WantedForm is the form asked for, the short one when none is.
func WantedForm() (Form, error) {
	name := cmp.Or(os.Getenv(FormVariable), Short.Name)
	for _, f := range []Form{Short, Usual, Long} {
		if f.Name == name {
			return f, nil
		}
	}
	return Form{}, fmt.Errorf("%s=%s: it must be %s, %s or %s", FormVariable, name, Short.Name, Usual.Name, Long.Name)
}
