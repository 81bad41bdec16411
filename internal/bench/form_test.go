package bench

import "testing"

func TestWantedForm(t *testing.T) {
	for _, c := range []struct {
		name, rounds string
		want         Form
	}{
		{"", "", Short},
		{"", "5", Short},
		{"usual", "", Usual},
		{"usual", "27", Form{"usual", 27, Usual.Span}},
		{"usual", "0", Form{}},
		{"usual", "many", Form{}},
		{"wrong", "3", Form{}},
	} {
		t.Setenv(FormVariable, c.name)
		t.Setenv(RoundsVariable, c.rounds)
		if got, err := WantedForm(); got != c.want || (err == nil) != (c.want != Form{}) {
			t.Errorf("%q with %q rounds: %v, %v", c.name, c.rounds, got, err)
		}
	}
}
