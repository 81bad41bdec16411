package market

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
)

// Times collects the latencies of a hop, in nanoseconds.
type Times struct {
	Hop string
	all []int64
}

// Add adds a latency.
func (t *Times) Add(ns int64) { t.all = append(t.all, ns) }

// Row is what a program reports of a hop.
type Row struct {
	Hop   string `json:"hop"`
	Count int    `json:"count"`
	P50   int64  `json:"p50_ns"`
	P99   int64  `json:"p99_ns"`
	Most  int64  `json:"max_ns"`
}

// Row sums the latencies up.
func (t *Times) Row() Row {
	r := Row{Hop: t.Hop, Count: len(t.all)}
	if len(t.all) > 0 {
		slices.Sort(t.all)
		r.P50, r.P99, r.Most = t.all[len(t.all)/2], t.all[len(t.all)*99/100], t.all[len(t.all)-1]
	}
	return r
}

// Report is what a program prints at its end, as JSON.
type Report struct {
	Program string            `json:"program"`
	Counts  map[string]uint64 `json:"counts"`
	Hops    []Row             `json:"hops"`
}

// Print writes a report.
func (r *Report) Print(w io.Writer, hops ...*Times) error {
	for _, t := range hops {
		r.Hops = append(r.Hops, t.Row())
	}
	b, err := json.Marshal(r)
	if err == nil {
		_, err = fmt.Fprintln(w, string(b))
	}
	return err
}
