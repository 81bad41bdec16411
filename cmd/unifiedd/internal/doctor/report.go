package doctor

// format is the version of the JSON form. It changes when a field changes its meaning or is
// removed. New fields, subjects and checks do not change it.
const format = 1

// Report has all results. Its JSON is that of `unifiedd doctor --json`.
type Report struct {
	Format   int       `json:"format"`
	State    State     `json:"state"` // the worst of all checks
	Sections []Section `json:"sections"`
}

// Section has the results for one subject: "kernel", "memory", "interface eth0", "disk
// /var/lib/unifiedd".
type Section struct {
	Subject string  `json:"subject"`
	Checks  []Check `json:"checks"`
}

// add appends a section, unless it is empty.
func (r *Report) add(subject string, checks []Check) {
	if len(checks) == 0 {
		return
	}
	r.Sections = append(r.Sections, Section{subject, checks})
	for _, c := range checks {
		r.State = max(r.State, c.State)
	}
}

// Count returns how many checks are in a state.
func (r *Report) Count(s State) int {
	n := 0
	for _, section := range r.Sections {
		for _, c := range section.Checks {
			if c.State == s {
				n++
			}
		}
	}
	return n
}
