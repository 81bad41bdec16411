package main

import (
	"fmt"
	"io"
	"time"

	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/selftests/harness"
)

// result is the result of a test.
type result struct {
	job       job
	verified  int
	refused   rdma.Status // of the request beyond the limits; Success: none was sent
	latency   *latencyRow
	bandwidth *bandwidthRow
	storage   *stored
	counted   counted
}

// stored is the result of the storage test.
type stored struct {
	Bytes         uint64
	Write, Read   time.Duration // from the first message until the last one is on the disk, and back
	ServerCopied  uint64        // bytes the server's kernel copied
	Registrations []string      // of the server's region
}

// print writes a table, or JSON.
func (r *result) print(out io.Writer, asJSON bool) error {
	if asJSON {
		return r.printJSON(out)
	}
	switch {
	case r.latency != nil:
		r.latency.print(out)
		fmt.Fprintf(out, "%s, %s\n", r.job.Op, r.latency.Way)
	case r.bandwidth != nil:
		r.bandwidth.print(out)
	case r.storage != nil:
		r.printStored(out)
	default:
		r.printVerified(out)
	}
	r.counted.print(out)
	return nil
}

func (r *result) printJSON(out io.Writer) error {
	refused := ""
	if r.refused != rdma.Success {
		refused = r.refused.String()
	}
	return harness.PrintJSON(out, struct {
		Job       job
		Verified  int           `json:",omitempty"`
		Refused   string        `json:",omitempty"`
		Latency   *latencyRow   `json:",omitempty"`
		Bandwidth *bandwidthRow `json:",omitempty"`
		Storage   *stored       `json:",omitempty"`
		Counters  counts        `json:",omitempty"`
	}{r.job, r.verified, refused, r.latency, r.bandwidth, r.storage, r.counted.counts})
}

func (r *result) printStored(out io.Writer) {
	s := r.storage
	rate := func(d time.Duration) float64 { return float64(s.Bytes) / d.Seconds() / (1 << 20) }
	fmt.Fprintf(out, "%d messages of %d bytes: over RDMA into the server's region, from there to its disk, and back, every byte as it should be\n", r.job.Count, r.job.Size)
	fmt.Fprintf(out, "to the disk %.1f MB/s, back %.1f MB/s; the server's kernel copied %d bytes\n", rate(s.Write), rate(s.Read), s.ServerCopied)
}
