package demo

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/latency"
	"github.com/unifiedd/unifiedd/rdma/providers"
)

// row is one flow of the table.
type row struct {
	flow, path   string
	sent, came   heard // the results of the sender and of the receiver
	lost         uint64
	status       status.Flow
	verifiedWith string
}

// rows returns the five flows.
func (f *five) rows() []row {
	make := func(name, path string, sent, came heard, with string) row {
		s := f.flow(name)
		return row{flow: name, path: path, sent: sent, came: came, lost: sum(s.Dropped), status: s, verifiedWith: with}
	}
	return []row{
		make("capture", "network to storage", f.heard["sent"], f.files["capture"], "the files"),
		make("wal", "RDMA to storage", f.heard["wal"], f.files["wal"], "the log"),
		make("feed", "network to RDMA", f.heard["fed"], f.heard["feed"], "the sink"),
		make("blocks", "storage to RDMA", f.heard["blocks"], f.heard["blocks"], "the reader"),
		make("relay", "RDMA to RDMA", f.heard["relay"], f.heard["relayed"], "the sink"),
	}
}

// times returns the latencies of a flow, from sending a message to its completion. The sender of
// captured packets gets no completion; their latencies are the flow's own, from arrival until they
// were written.
func (r *row) times() *latency.Summary {
	for _, l := range []*latency.Summary{r.status.Latency, r.came.Latency, r.sent.Latency} {
		if l != nil {
			return l
		}
	}
	if t := r.status.FrameTimes; t != nil && t.Done != nil {
		return &t.Done.Summary
	}
	return nil
}

// table prints a line for each flow, and the holders of the frames.
func (f *five) table(w io.Writer) error {
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "flow\t\tsent\tverified\tbytes\tper second\tp50 us\tp99 us\tp99.9 us\tlost\tour copies\tkernel's\tby\t")
	rows := f.rows()
	for i := range rows {
		r := &rows[i]
		p50, p99, p999 := "-", "-", "-"
		if l := r.times(); l != nil {
			p50, p99, p999 = micros(l.P50), micros(l.P99), micros(l.P999)
		}
		s := &r.status
		fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%d\t%.0f\t%s\t%s\t%s\t%d\t%.2f\t%.2f\t%s\t\n", r.flow, r.path, r.sent.Messages, r.came.Messages, r.came.Bytes,
			float64(r.sent.Messages)/max(r.sent.Seconds, 1e-9), p50, p99, p999, r.lost,
			ratio(sum(s.CopiedBytes), max(s.Bytes, r.came.Bytes)), ratio(sum(s.KernelBytes), max(s.Bytes, r.came.Bytes)), r.verifiedWith)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	note := ""
	if _, soft := providers.Soft(f.Device); soft {
		note = " RoCE in software must place what comes into posted receives: its one copy, which an RDMA card does itself."
	}
	_, err := fmt.Fprintf(w, "Copies are per byte.%s\nFrames: %s.\n", note, f.owners())
	return err
}

func micros(ns int64) string { return fmt.Sprintf("%.0f", float64(ns)/1e3) }

// owners describes the holders of the region's frames.
func (f *five) owners() string {
	r := f.status.Region
	var words []string
	for _, owner := range slices.Sorted(maps.Keys(r.Owners)) {
		words = append(words, fmt.Sprintf("%d %s", r.Owners[owner], owner))
	}
	return fmt.Sprintf("%s: %d of %d", strings.Join(words, ", "), sumOwners(r.Owners), r.Frames)
}

func sumOwners(owners map[string]int64) (n int64) {
	for _, k := range owners {
		n += k
	}
	return n
}

// problems returns everything that does not add up.
func (f *five) problems() (errs []error) {
	rows := f.rows()
	for i := range rows {
		r := &rows[i]
		if r.sent.Messages != r.came.Messages+r.lost {
			errs = append(errs, fmt.Errorf("flow %s: %d were sent, %d were verified, and %d are counted as lost", r.flow, r.sent.Messages, r.came.Messages, r.lost))
		}
		if !r.status.State.Up() {
			errs = append(errs, fmt.Errorf("flow %s is %s: %s", r.flow, r.status.State, r.status.Error))
		}
	}
	if n := sumOwners(f.status.Region.Owners); n != f.status.Region.Frames || n == 0 {
		errs = append(errs, fmt.Errorf("the owners have %d frames of %d", n, f.status.Region.Frames))
	}
	return errs
}
