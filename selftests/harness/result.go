package harness

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/latency"
)

// Clocks has the time, and the processor time of the process so far.
type Clocks struct {
	At           time.Time
	User, System time.Duration
}

// ReadClocks reads the clocks.
func ReadClocks() Clocks {
	var r unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &r) // with a valid pointer it cannot fail
	return Clocks{At: time.Now(), User: time.Duration(r.Utime.Nano()), System: time.Duration(r.Stime.Nano())}
}

// Monotonic returns CLOCK_MONOTONIC in nanoseconds. All processes of a machine have the same one.
func Monotonic() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // with a valid pointer it cannot fail
	return t.Nano()
}

// PerOperation returns the processor time since an earlier reading, in nanoseconds per
// operation.
func (c Clocks) PerOperation(since Clocks, operations float64) (user, system float64) {
	return float64(c.User-since.User) / operations, float64(c.System-since.System) / operations
}

// PrintJSON prints a value as indented JSON.
func PrintJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// Print prints a result: as JSON, or for people as rows writes it, with tabs between the columns.
func Print(w io.Writer, asJSON bool, v any, rows func(io.Writer)) error {
	if asJSON {
		return PrintJSON(w, v)
	}
	var b bytes.Buffer
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	rows(t)
	_ = t.Flush() // a buffer takes everything
	_, err := w.Write(b.Bytes())
	return err
}

// LatencyText returns a summary as text for people.
func LatencyText(l *latency.Summary) string {
	us := func(ns float64) string { return fmt.Sprintf("%.1f µs", ns/1e3) }
	return fmt.Sprintf("min %s, median %s, mean %s, 99 %% %s, 99.9 %% %s, max %s, of %d",
		us(float64(l.Min)), us(float64(l.P50)), us(l.Mean), us(float64(l.P99)), us(float64(l.P999)), us(float64(l.Max)), l.Count)
}

// YesNo returns a word for people.
func YesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
