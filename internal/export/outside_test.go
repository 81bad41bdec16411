package export

import "testing"

// TestOutside: a segment is skipped only if it lies outside the selected times by more than slack.
func TestOutside(t *testing.T) {
	const s = slack
	for name, c := range map[string]struct {
		from, to, first, last uint64
		want                  bool
	}{
		"before":                       {100 * s, 0, 10 * s, 99 * s, true},
		"just before":                  {100 * s, 0, 10 * s, 99*s + 1, false},
		"behind":                       {0, 100 * s, 101 * s, 200 * s, true},
		"just behind":                  {0, 100 * s, 101*s - 1, 200 * s, false},
		"behind, its end not known":    {0, 100 * s, 101 * s, 0, true},
		"before, its end not known":    {100 * s, 0, 10 * s, 0, false},
		"its beginning not known":      {100 * s, 0, 0, 10 * s, false},
		"the clock was set back in it": {100 * s, 200 * s, 300 * s, 10 * s, false},
		"inside":                       {10 * s, 20 * s, 12 * s, 15 * s, false},
		"across":                       {10 * s, 20 * s, 5 * s, 25 * s, false},
		"no bounds":                    {0, 0, 5 * s, 25 * s, false},
	} {
		if got := (&Select{From: c.from, To: c.to}).outside(c.first, c.last); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
