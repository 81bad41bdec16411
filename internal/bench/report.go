package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/pairs"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// Direction says which values are better.
type Direction string

const (
	More Direction = "more" // the higher the better, as a rate
	Less Direction = "less" // the lower the better, as a cost
)

// Comparison is one measure of one case of both programs.
type Comparison struct {
	Case   string      `json:"case"`          // the work: "received, 64 B, 8 clients"
	Metric string      `json:"metric"`        // the measured quantity: "latency, median"
	Unit   string      `json:"unit"`          // for people: "kIOPS", "µs"
	Better Direction   `json:"better"`        // which way is good
	Bar    float64     `json:"bar,omitempty"` // the bar for the ratio; zero: none
	Pairs  pairs.Pairs `json:"pairs"`         // one for each round
}

// verdict describes the bar and whether the unfavourable bound of the ratio meets it.
func (c *Comparison) verdict() string {
	e := c.Pairs.Estimate()
	sign, side, bound, met := "≥", "low", e.Low, e.Low >= c.Bar
	if c.Better == Less {
		sign, side, bound, met = "≤", "high", e.High, e.High <= c.Bar
	}
	verdict := "missed"
	switch {
	case c.Bar == 0:
		return "-"
	case !isKnown(bound):
		verdict = "too few pairs"
	case met:
		verdict = "met"
	}
	return fmt.Sprintf("%s %s %.2f: %s", side, sign, c.Bar, verdict)
}

// Report is the comparisons of one benchmark.
type Report struct {
	*testing.T   `json:"-"`
	Form         Form         `json:"form"`
	Title        string       `json:"title"`
	Ours         string       `json:"ours"`   // name of our program
	Theirs       string       `json:"theirs"` // name and version of the other
	Kernel       string       `json:"kernel"`
	CPUs         int          `json:"cpus"`
	Began        time.Time    `json:"start"`
	Notes        []string     `json:"notes"` // how it was measured, for people
	Comparisons  []Comparison `json:"comparisons"`
	name         string       // of its files
	wanted       *regexp.Regexp
	stolenBefore time.Duration
}

// Start begins a report, which gets the file name build/bench/NAME. It skips the test unless make bench runs it.
func Start(t *testing.T, name, title, ours, theirs string) *Report {
	t.Helper()
	form := wantedForm(t)
	testenv.Root(t)
	if runtime.NumCPU() < 2 {
		t.Fatal("the two ends need a processor each")
	}
	wanted, err := regexp.Compile(os.Getenv(casesVariable))
	testenv.Mustf(t, err, "%s", casesVariable)
	var u unix.Utsname
	_ = unix.Uname(&u) // with a pointer of ours it cannot go wrong
	return &Report{T: t, Form: form, Title: title, Ours: ours, Theirs: theirs, Kernel: unix.ByteSliceToString(u.Release[:]), CPUs: runtime.NumCPU(),
		Began: time.Now(), Notes: load("before"), name: name, wanted: wanted, stolenBefore: Stolen()}
}

// Must ends the test if there is an error.
func (r *Report) Must(err error) {
	r.Helper()
	testenv.Must(r, err)
}

// Wants reports whether a case is requested.
func (r *Report) Wants(name string) bool { return r.wanted.MatchString(name) }

// Add adds results.
func (r *Report) Add(all ...Comparison) { r.Comparisons = append(r.Comparisons, all...) }

// Finish notes how it was measured, prints the table, and saves table and JSON in build/bench. The files of a lab guest
// do not outlive it: there it only prints.
func (r *Report) Finish(notes ...string) {
	r.Helper()
	if len(r.Comparisons) == 0 && len(r.Notes) == 1 { // the load
		r.Fatalf("%s=%s: there is no such case", casesVariable, r.wanted)
	}
	r.Notes = append(append(r.Notes, load("after")...), notes...)
	if share := float64(Stolen()-r.stolenBefore) / float64(time.Since(r.Began)) / float64(r.CPUs); share >= 0.01 {
		r.Notes = append(r.Notes, fmt.Sprintf("The host of this machine had %.0f %% of its processors' time meanwhile, which widens the bounds.", 100*share))
	}
	var text strings.Builder
	r.Must(r.table(&text))
	fmt.Fprint(r.Output(), text.String())
	if os.Getenv("UNIFIEDD_LAB_KERNEL") != "" {
		return
	}
	data, err := json.MarshalIndent(r, "", "  ")
	r.Must(err)
	r.Must(os.MkdirAll(Path(r, "build/bench"), 0o755))
	r.Must(os.WriteFile(Path(r, "build/bench/"+r.name+".txt"), []byte(text.String()), 0o644))
	r.Must(os.WriteFile(Path(r, "build/bench/"+r.name+".json"), data, 0o644))
}

// load is how busy the machine is: proc_loadavg(5). Other load may be the cause of bounds that are far apart.
func load(when string) []string {
	text, _ := os.ReadFile("/proc/loadavg")
	minute, _, _ := strings.Cut(string(text), " ")
	return []string{fmt.Sprintf("Load average %s: %s, of everything on the machine.", when, minute)}
}

// table prints the report for people.
func (r *Report) table(w io.Writer) error {
	fmt.Fprintf(w, "%s: %s against %s (Linux %s, %d CPUs; %v)\n\n", r.Title, r.Ours, r.Theirs, r.Kernel, r.CPUs, r.Form)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "CASE\tMEASURE\tOURS\tTHEIRS\tRATIO\tLOW\tHIGH\tBAR\t")
	for i := range r.Comparisons {
		c := &r.Comparisons[i]
		m, e := c.Pairs.Medians(), c.Pairs.Estimate()
		fmt.Fprintf(t, "%s\t%s\t%s %s\t%s\t%.3f\t%s\t%s\t%s\t\n", c.Case, c.Metric, number(m.Ours), c.Unit, number(m.Theirs),
			e.Ratio, bound(e.Low), bound(e.High), c.verdict())
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "\nRatios are ours over theirs; LOW and HIGH are each sure to %.0f %%.\n%s\n", 100*pairs.Confidence, strings.Join(r.Notes, "\n"))
	return nil
}

// number prints v with three significant digits.
func number(v float64) string {
	if v == 0 || math.Abs(v) >= 100 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.*f", max(0, 2-int(math.Floor(math.Log10(math.Abs(v))))), v)
}

// bound prints an end of an interval, which may be missing.
func bound(v float64) string {
	if !isKnown(v) {
		return "-"
	}
	return fmt.Sprintf("%.3f", v)
}

// isKnown reports whether v is a ratio, and not a placeholder for a missing bound.
func isKnown(v float64) bool { return v > 0 && !math.IsInf(v, 0) }
