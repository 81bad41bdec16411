package main

import (
	"fmt"
	"io"

	"github.com/unifiedd/unifiedd/internal/latency"
	"github.com/unifiedd/unifiedd/nvme"
	"github.com/unifiedd/unifiedd/selftests/harness"
)

// moment has the clocks and counters at one moment.
type moment struct {
	clocks harness.Clocks
	stats  nvme.Stats
}

// take reads the process's clocks and the queue's counters.
func take(q *nvme.Queue) moment { return moment{clocks: harness.ReadClocks(), stats: q.Stats()} }

// granted has the features that the kernel granted.
type granted struct {
	Target      string `json:"target"`
	Block       bool   `json:"block_device"`
	Node        bool   `json:"nvme_node"`
	Size        uint64 `json:"size"`
	Direct      bool   `json:"direct"`
	AlignMemory uint32 `json:"align_memory"`
	AlignOffset uint32 `json:"align_offset"`
	Pages       string `json:"pages"`
	Fixed       bool   `json:"fixed_buffers"`
	Rings       bool   `json:"rings_in_region"`
	Gather      bool   `json:"gather_fixed"`
	Defer       bool   `json:"defer_taskrun"`
}

// grantedTo reads the features of the session. A queue without fixed buffers does not open.
func grantedTo(s *session) granted {
	g, a := s.queue.Granted(), s.target.Alignment()
	return granted{Target: s.target.Path(), Block: s.target.Block(), Node: s.target.Passthrough(), Size: s.target.Size(), Direct: s.target.Direct(),
		AlignMemory: a.Memory, AlignOffset: a.Offset, Pages: s.region.Pages().String(),
		Fixed: true, Rings: g.RingsInRegion, Gather: g.GatherFixed, Defer: g.DeferTaskrun}
}

// print prints it for people.
func (g granted) print(w io.Writer) {
	kind, direct := "file", "direct I/O"
	switch {
	case g.Block:
		kind = "block device"
	case g.Node:
		kind, direct = "NVMe node", "commands past the block layer"
	case !g.Direct:
		direct = "no direct I/O, the kernel copies"
	}
	fmt.Fprintf(w, "target   %s, %s of %s, %s, alignment: memory %d, offset and length %d\n", g.Target, kind, bytesText(g.Size), direct, g.AlignMemory, g.AlignOffset)
	fmt.Fprintf(w, "region   %s, fixed buffers, rings in its control area: %s\n", g.Pages, harness.YesNo(g.Rings))
	fmt.Fprintf(w, "kernel   gathers from fixed buffers: %s, completes when asked: %s\n", harness.YesNo(g.Gather), harness.YesNo(g.Defer))
}

// result is the result of a load.
type result struct {
	Granted   granted          `json:"granted"`
	Mode      string           `json:"rw"`
	BlockSize uint64           `json:"bs"`
	Depth     int              `json:"iodepth"`
	Seconds   float64          `json:"seconds"`
	Reads     uint64           `json:"reads"`
	Writes    uint64           `json:"writes"`
	Bytes     uint64           `json:"bytes"`
	IOPS      float64          `json:"iops"`
	Bandwidth float64          `json:"bytes_per_second"`
	Latency   *latency.Summary `json:"latency,omitempty"`
	User      float64          `json:"user_ns_per_io"`
	System    float64          `json:"system_ns_per_io"`
	Enters    float64          `json:"system_calls_per_io"`
	Copied    uint64           `json:"copied_bytes"`
	Pinned    uint64           `json:"pinned"`
	Short     uint64           `json:"short"`
	Again     uint64           `json:"again"`
	Errors    uint64           `json:"errors"`
	Verified  *uint64          `json:"verified,omitempty"` // blocks
}

func newResult(l *loader, a, b moment) *result {
	s := b.stats
	r := &result{Granted: grantedTo(l.session), Mode: l.options.rw, BlockSize: l.plan.block, Depth: l.options.depth,
		Seconds: b.clocks.At.Sub(a.clocks.At).Seconds(), Reads: s.Reads - a.stats.Reads, Writes: s.Writes - a.stats.Writes,
		Latency: l.hist.Summary(), Copied: s.Copied - a.stats.Copied, Pinned: s.Pinned - a.stats.Pinned, Short: s.Short - a.stats.Short,
		Again: s.Again - a.stats.Again}
	r.Bytes = s.BytesRead + s.BytesWritten - a.stats.BytesRead - a.stats.BytesWritten
	for _, n := range s.Errors {
		r.Errors += n
	}
	n := max(1, float64(r.Reads+r.Writes))
	r.IOPS, r.Bandwidth = n/r.Seconds, float64(r.Bytes)/r.Seconds
	r.User, r.System = b.clocks.PerOperation(a.clocks, n)
	r.Enters = float64(s.Enters-a.stats.Enters) / n
	if l.check != nil {
		r.Verified = &l.check.checked
	}
	return r
}

// print prints the result for people or programs.
func (r *result) print(w io.Writer, asJSON bool) error {
	return harness.Print(w, asJSON, r, func(t io.Writer) {
		r.Granted.print(t)
		fmt.Fprintf(t, "\n%s, %s at a time %d, %.2f s\n", r.Mode, bytesText(r.BlockSize), r.Depth, r.Seconds)
		fmt.Fprintf(t, "operations\t%d read, %d written, %d errors\n", r.Reads, r.Writes, r.Errors)
		fmt.Fprintf(t, "rate\t%.1f kIOPS, %.1f MB/s\n", r.IOPS/1e3, r.Bandwidth/1e6)
		if l := r.Latency; l != nil {
			fmt.Fprintf(t, "latency\t%s\n", harness.LatencyText(l))
		}
		fmt.Fprintf(t, "processor\t%.2f µs per operation (user %.2f, system %.2f)\n", (r.User+r.System)/1e3, r.User/1e3, r.System/1e3)
		fmt.Fprintf(t, "system calls\t%.3f per operation\n", r.Enters)
		if r.Verified != nil {
			fmt.Fprintf(t, "verified\t%d blocks, every byte\n", *r.Verified)
		}
		if r.Copied+r.Pinned+r.Short+r.Again > 0 {
			fmt.Fprintf(t, "beside\t%d bytes copied by the kernel, %d operations with pages pinned, %d transfers cut short, %d operations given up by the kernel and tried again\n",
				r.Copied, r.Pinned, r.Short, r.Again)
		}
	})
}
