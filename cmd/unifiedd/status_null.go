package main

import (
	"fmt"
	"io"
	"time"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/latency"
)

// printGenerated prints the end at which packets are made.
func printGenerated(w io.Writer, f *status.Flow) {
	g := f.Generated
	if g == nil {
		return
	}
	rate := "as many as are taken"
	if g.Rate > 0 {
		rate = fmt.Sprintf("%d a second", g.Rate)
	}
	fmt.Fprintf(w, "  generated\t%d packets of %d bytes (%s), %d waiting; lost: %s\n", f.Packets, g.Length, rate, f.Waiting, nonzero(f.Dropped))
}

// printDiscarded prints the end that gives everything back.
func printDiscarded(w io.Writer, f *status.Flow) {
	if d := f.Discarded; d != nil {
		fmt.Fprintf(w, "  discarded\t%d %s, %d bytes\n", d.Packets, unitOf(f), d.Bytes)
	}
}

// printLevel prints what a flow holds.
func printLevel(w io.Writer, l *status.Watermarks) {
	if l == nil {
		return
	}
	fmt.Fprintf(w, "  between\t%d frames, at most %d", l.Held, l.Most)
	if l.High > 0 {
		fmt.Fprintf(w, "; with %d the source has to wait until there are %d: %d times, %v", l.High, l.Low, l.Pauses,
			time.Duration(l.Paused*float64(time.Second)).Round(time.Millisecond))
	}
	fmt.Fprintln(w)
}

// printTimes prints how long packets took.
func printTimes(w io.Writer, t *status.FrameTimes) {
	if t == nil {
		return
	}
	for _, one := range []struct {
		what string
		d    *latency.Distribution
	}{{"to the device", t.Submitted}, {"to its end", t.Done}} {
		if d := one.d; d != nil {
			fmt.Fprintf(w, "  %s\tmedian %s, 99 %% %s, 99.9 %% %s, at most %s\n", one.what, brief(d.P50), brief(d.P99), brief(d.P999), brief(d.Max))
		}
	}
}
