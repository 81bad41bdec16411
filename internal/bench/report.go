package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"
)

// Report is the comparisons of one benchmark.
type Report struct {
	Title       string       `json:"title"`
	Ours        string       `json:"ours"`   // name of our program
	Theirs      string       `json:"theirs"` // name and version of the other
	Kernel      string       `json:"kernel"`
	CPUs        int          `json:"cpus"`
	Start       time.Time    `json:"start"`
	Notes       []string     `json:"notes,omitempty"` // how it was measured, for people
	Comparisons []Comparison `json:"comparisons"`

	began  time.Time
	stolen time.Duration // until then
}

// NewReport starts a report about this machine.
func NewReport(title, ours, theirs string) *Report {
	var u unix.Utsname
	_ = unix.Uname(&u) // with a pointer of ours it cannot go wrong
	return &Report{Title: title, Ours: ours, Theirs: theirs, Kernel: unix.ByteSliceToString(u.Release[:]),
		CPUs: runtime.NumCPU(), Start: time.Now().UTC().Truncate(time.Second), began: time.Now(), stolen: Stolen()}
}

// NoteLoad notes how busy the machine is: proc_loadavg(5). Other load may be the cause of bounds
// that are far apart.
func (r *Report) NoteLoad(when string) { r.Notes = append(r.Notes, loadNote(when)...) }

func loadNote(when string) []string {
	text, err := os.ReadFile("/proc/loadavg")
	if minute, _, ok := strings.Cut(string(text), " "); ok && err == nil {
		return []string{fmt.Sprintf("Load average %s: %s, of everything on the machine.", when, minute)}
	}
	return nil
}

// Met reports whether every bar is met.
func (r *Report) Met() bool {
	return !slices.ContainsFunc(r.Comparisons, func(c Comparison) bool { return !c.Met() })
}

// Table prints the report for people.
func (r *Report) Table(w io.Writer) error {
	fmt.Fprintf(w, "%s: %s against %s (Linux %s, %d CPUs)\n\n", r.Title, r.Ours, r.Theirs, r.Kernel, r.CPUs)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "CASE\tMEASURE\tOURS\tTHEIRS\tRATIO\tLOW\tHIGH\tBAR\t")
	for i := range r.Comparisons {
		c := &r.Comparisons[i]
		m, e := c.Medians(), c.Estimate()
		fmt.Fprintf(t, "%s\t%s\t%s %s\t%s\t%.3f\t%s\t%s\t%s\t\n", c.Case, c.Metric, number(m.Ours), c.Unit, number(m.Theirs),
			e.Ratio, bound(e.Low), bound(e.High), verdict(c))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "\nRatios are ours over theirs; LOW and HIGH are each sure to %.0f %%.\n", 100*confidence)
	for _, n := range r.Notes {
		fmt.Fprintln(w, n)
	}
	return nil
}

// verdict describes the bar and whether it is met.
func verdict(c *Comparison) string {
	sign, side, bound := "≥", "low", c.Estimate().Low
	if c.Better == Less {
		sign, side, bound = "≤", "high", c.Estimate().High
	}
	switch {
	case c.Bar == 0:
		return "-"
	case !isKnown(bound):
		return fmt.Sprintf("%s %s %.2f: too few pairs", side, sign, c.Bar)
	case c.Met():
		return fmt.Sprintf("%s %s %.2f: met", side, sign, c.Bar)
	}
	return fmt.Sprintf("%s %s %.2f: missed", side, sign, c.Bar)
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

// Save writes dir/name.json, dir/name.svg and dir/name.txt, the table.
func (r *Report) Save(dir, name string) error { return save(r, dir, name) }

// paper is a report that can be saved.
type paper interface {
	Table(io.Writer) error
	JSON(io.Writer) error
	SVG(io.Writer) error
}

func save(p paper, dir, name string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("save the report: %w", err)
	}
	for ext, write := range map[string]func(io.Writer) error{".json": p.JSON, ".svg": p.SVG, ".txt": p.Table} {
		if err := saveFile(filepath.Join(dir, name+ext), write); err != nil {
			return fmt.Errorf("save the report: %w", err)
		}
	}
	return nil
}

// Finish prints the report and saves it under that name: in build/bench, relative to the package of a
// contest. The short form, which is no measurement, goes to scratch.
func (r *Report) Finish(out io.Writer, form Form, scratch, name string) error {
	r.noteHost()
	return finish(r, out, form, scratch, name)
}

func finish(p paper, out io.Writer, form Form, scratch, name string) error {
	dir := filepath.Join("..", "..", "..", "build", "bench")
	if form == Short {
		dir = scratch
	}
	if err := p.Table(out); err != nil {
		return err
	}
	return save(p, dir, name)
}

func saveFile(path string, write func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := write(f); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

// assessed is a comparison and the results from its pairs. Missing bounds are null.
type assessed struct {
	Comparison
	Ratio *float64 `json:"ratio"`
	Low   *float64 `json:"low"`
	High  *float64 `json:"high"`
	Met   bool     `json:"met"`
}

// JSON writes the report for programs: its fields, and for each comparison the results from its
// pairs.
func (r *Report) JSON(w io.Writer) error {
	type plain Report
	out := struct {
		plain
		Confidence  float64    `json:"confidence"`
		Met         bool       `json:"met"`
		Comparisons []assessed `json:"comparisons"`
	}{plain(*r), confidence, r.Met(), nil}
	for _, c := range r.Comparisons {
		e := c.Estimate()
		out.Comparisons = append(out.Comparisons, assessed{c, known(e.Ratio), known(e.Low), known(e.High), c.Met()})
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(out)
}

func known(v float64) *float64 {
	if !isKnown(v) {
		return nil
	}
	return &v
}

// isKnown reports whether v is a ratio, and not a placeholder for a missing bound.
func isKnown(v float64) bool { return v > 0 && !math.IsInf(v, 0) }
