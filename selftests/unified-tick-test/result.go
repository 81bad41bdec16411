package main

import (
	"fmt"
	"io"

	"github.com/unifiedd/unifiedd/internal/latency"
	"github.com/unifiedd/unifiedd/selftests/harness"
)

// result is what the exchange prints.
type result struct {
	Command    string           `json:"command"`
	Protocol   string           `json:"protocol"`
	Wait       string           `json:"wait"`
	Seconds    float64          `json:"seconds"`
	Ticks      uint64           `json:"ticks"`                 // that were to be sent, with those that are not measured
	Dropped    uint64           `json:"dropped"`               // of them, that every line left out
	Answered   uint64           `json:"answered"`              // with the right order
	Unanswered uint64           `json:"unanswered"`            // that a line had
	Early      bool             `json:"ended_early,omitempty"` // by -end-after: ticks need not be answered
	Bytes      uint64           `json:"order_bytes"`
	Lines      []lineResult     `json:"lines"`
	Clock      string           `json:"clock"` // of the latency: kernel, or own
	Latency    *latency.Summary `json:"tick_to_order,omitempty"`
	Own        *latency.Summary `json:"own_clock,omitempty"` // by the program's own clock, whatever Clock is
	Unstamped  uint64           `json:"unstamped"`           // measured orders without both stamps of the kernel; the latency is then by the own clock
}

// lineResult is what a line has sent.
type lineResult struct {
	To      string `json:"to"`
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
	Dropped uint64 `json:"dropped"` // ticks that it left out
}

// result sums up what there is.
func (x *exchange) result(seconds float64) *result {
	r := &result{
		Early: x.o.end > 0, Command: x.o.command.Name, Protocol: x.o.protocol, Wait: x.o.wait, Seconds: seconds, Ticks: x.all, Dropped: x.dropped, Answered: x.answered,
		Unanswered: x.next - 1 - x.dropped - x.answered, Bytes: x.orders.bytes, Clock: x.o.stamps,
	}
	for _, l := range x.lines {
		r.Lines = append(r.Lines, lineResult{l.to.String(), l.packets, l.bytes, l.dropped})
	}
	byKernel, byOwn := latency.New(), latency.New()
	for _, m := range x.ticks[x.o.warm+1:] {
		if m.in == 0 {
			continue
		}
		byOwn.Record(uint64(max(0, m.in-m.out)))
		if m.outKernel == 0 || m.inKernel == 0 {
			r.Unstamped++
			continue
		}
		byKernel.Record(uint64(max(0, m.inKernel-m.outKernel)))
	}
	r.Own, r.Latency = byOwn.Summary(), byKernel.Summary()
	if r.Clock == own {
		r.Unstamped = 0
	}
	if r.Clock == own || r.Unstamped > 0 {
		r.Clock, r.Latency = own, r.Own
	}
	return r
}

// judge returns an error if an order is missing.
func (r *result) judge() error {
	switch {
	case r.Unanswered > 0 && !r.Early:
		return fmt.Errorf("%d of %d ticks were not answered", r.Unanswered, r.Ticks-r.Dropped)
	case r.Latency == nil:
		return fmt.Errorf("no tick was measured: all %d were left out", r.Dropped)
	}
	return nil
}

// print prints the result for people or programs.
func (r *result) print(w io.Writer, asJSON bool) error { return harness.Print(w, asJSON, r, r.rows) }

func (r *result) rows(t io.Writer) {
	fmt.Fprintf(t, "ticks\t%d in %.2f s, %.0f a second; the exchange waits by %s\n", r.Ticks, r.Seconds, float64(r.Ticks)/r.Seconds, r.Wait)
	for _, l := range r.Lines {
		fmt.Fprintf(t, "line %s\t%d packets, %d bytes, %d ticks left out\n", l.To, l.Packets, l.Bytes, l.Dropped)
	}
	fmt.Fprintf(t, "orders\t%d (%s), %d bytes, all as they must be; %d ticks were left out by all lines, %d were not answered\n", r.Answered, r.Protocol, r.Bytes, r.Dropped, r.Unanswered)
	if r.Latency != nil && r.Clock == kernel {
		fmt.Fprintf(t, "tick to order\t%s\n\tby the kernel's stamps, driver to driver\n", harness.LatencyText(r.Latency))
	}
	if r.Own != nil {
		fmt.Fprintf(t, "tick to order\t%s\n\tby the program's clock, with its own calls and waits\n", harness.LatencyText(r.Own))
	}
	if r.Unstamped > 0 {
		fmt.Fprintf(t, "stamps\t%d orders lack one of the kernel's: the driver does not stamp, or the kernel's queue of stamps was full\n", r.Unstamped)
	}
}
