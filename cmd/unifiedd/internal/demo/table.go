package demo

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// table prints a line for each capture.
func table(w io.Writer, results []result) error {
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "layout\tsent\tcaptured\tbytes\tpackets/s\tlost\tour copies\tkernel's\tdisk bytes/packet\tread by\t")
	for i := range results {
		r := &results[i]
		s := &r.status
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%.0f\t%d\t%.2f\t%.2f\t%.0f\t%s\t\n", r.layout, r.sent.packets, s.Packets, s.Bytes, r.speed(),
			r.lost(), ratio(sum(s.CopiedBytes), s.Bytes), ratio(sum(s.KernelBytes), s.Bytes), ratio(r.disk, s.Packets), r.readBy())
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w, "Copies are per byte captured. The kernel's one is that of veth, which has no zero copy.")
	for i := range results {
		results[i].explainLosses(w)
	}
	return err
}

// explainLosses prints the reasons if packets were lost. On a busy machine this is normal.
func (r *result) explainLosses(w io.Writer) {
	for _, reason := range slices.Sorted(maps.Keys(r.status.Dropped)) {
		if n := r.status.Dropped[reason]; n > 0 {
			fmt.Fprintf(w, "The %s layout lost %d packets: %s (see docs/reference/reasons.md; is the machine busy?)\n", r.layout, n, reason)
		}
	}
}

// speed returns the packets per second, according to the times in the files.
func (r *result) speed() float64 {
	if r.last <= r.first {
		return 0
	}
	return float64(r.status.Written.Packets) / (r.last - r.first)
}

func (r *result) readBy() string {
	var names []string
	for _, one := range r.readings {
		names = append(names, one.reader)
	}
	return strings.Join(names, ", ")
}

func sum(by map[string]uint64) (n uint64) {
	for _, k := range by {
		n += k
	}
	return n
}

func ratio(a, b uint64) float64 { return float64(a) / float64(max(b, 1)) }
