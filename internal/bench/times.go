package bench

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/unifiedd/unifiedd/internal/latency"
)

// Times is a report of durations, as histograms.
type Times struct {
	Title  string    `json:"title"`
	Kernel string    `json:"kernel"`
	CPUs   int       `json:"cpus"`
	Start  time.Time `json:"start"`
	Notes  []string  `json:"notes,omitempty"` // how it was measured, for people
	Lines  []Line    `json:"lines"`
}

// Line is one histogram.
type Line struct {
	Case  string                `json:"case"`
	Times *latency.Distribution `json:"times"`
}

// NewTimes starts a report about this machine.
func NewTimes(title string) *Times {
	r := NewReport(title, "", "")
	return &Times{Title: title, Kernel: r.Kernel, CPUs: r.CPUs, Start: r.Start}
}

// NoteLoad notes how busy the machine is, as Report.NoteLoad does.
func (t *Times) NoteLoad(when string) { t.Notes = append(t.Notes, loadNote(when)...) }

// Add adds a histogram with something in it.
func (t *Times) Add(name string, d *latency.Distribution) error {
	if d == nil || d.Count == 0 {
		return fmt.Errorf("%s: nothing was measured", name)
	}
	t.Lines = append(t.Lines, Line{name, d})
	return nil
}

// Table prints the report for people.
func (t *Times) Table(w io.Writer) error {
	fmt.Fprintf(w, "%s (Linux %s, %d CPUs)\n\n", t.Title, t.Kernel, t.CPUs)
	rows := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(rows, "CASE\tCOUNT\tLEAST\tMEDIAN\t99 %\t99.9 %\tMOST\t")
	for _, l := range t.Lines {
		d := l.Times
		fmt.Fprintf(rows, "%s\t%d\t%v\t%v\t%v\t%v\t%v\t\n", l.Case, d.Count, brief(d.Min), brief(d.P50), brief(d.P99), brief(d.P999), brief(d.Max))
	}
	if err := rows.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	for _, n := range t.Notes {
		fmt.Fprintln(w, n)
	}
	return nil
}

// brief is a time to three digits.
func brief(ns int64) time.Duration {
	d := time.Duration(ns)
	for to := time.Second; to >= time.Microsecond; to /= 10 {
		if d >= to {
			return d.Round(to / 100)
		}
	}
	return d
}

// JSON prints all of the report.
func (t *Times) JSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(t)
}

// The sizes of histograms in pixels, in addition to those for ratios.
const (
	timesRow   = 90
	timesFirst = 9  // the axis begins at this power of two, in nanoseconds
	timesLast  = 31 // and ends at these
)

// SVG draws one histogram for each case, over the same axis of doublings.
func (t *Times) SVG(w io.Writer) error {
	var b strings.Builder
	height := svgTop + timesRow*len(t.Lines) + svgBottom
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="sans-serif" font-size="13" fill="#222">`+"\n",
		svgWidth, height, svgWidth, height)
	fmt.Fprintf(&b, "<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n", svgWidth, height)
	text := func(x float64, y int, attributes, s string) {
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" %s>`, x, y, attributes)
		_ = xml.EscapeText(&b, []byte(s)) // a Builder takes everything
		b.WriteString("</text>\n")
	}
	text(16, 28, `font-size="17" font-weight="bold"`, t.Title)
	text(16, 50, `fill="#555"`, fmt.Sprintf("share of all, by doublings of time · Linux %s, %d CPUs, %s", t.Kernel, t.CPUs, t.Start.Format("2006-01-02")))
	bottom := svgTop + timesRow*len(t.Lines)
	for power := timesFirst; power <= timesLast; power += 2 {
		x := timesX(power)
		fmt.Fprintf(&b, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#ddd"/>`+"\n", x, svgTop-6, x, bottom+6)
		text(x, bottom+24, `text-anchor="middle" font-size="12"`, brief(1<<power).String())
	}
	for i, l := range t.Lines {
		floor := svgTop + timesRow*(i+1) - 12
		text(16, floor-34, `text-anchor="start"`, l.Case)
		text(16, floor-14, `fill="#555" font-size="12"`, fmt.Sprintf("median %v, 99 %% %v, 99.9 %% %v", brief(l.Times.P50), brief(l.Times.P99), brief(l.Times.P999)))
		for _, bucket := range l.Times.Buckets {
			power := int(math.Log2(float64(bucket.Below)))
			high := float64(timesRow-24) * float64(bucket.Count) / float64(l.Times.Count)
			fmt.Fprintf(&b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="#1b6ca8"/>`+"\n",
				timesX(power-1)+1, float64(floor)-high, timesX(power)-timesX(power-1)-2, high)
		}
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// timesX is the place of a power of two nanoseconds. Powers outside the axis are at its end.
func timesX(power int) float64 {
	at := float64(max(timesFirst, min(timesLast, power))-timesFirst) / (timesLast - timesFirst)
	return svgLabels + at*(svgWidth-svgLabels-40)
}

// Finish prints the report and saves it, as Report.Finish does.
func (t *Times) Finish(out io.Writer, form Form, scratch, name string) error {
	return finish(t, out, form, scratch, name)
}
