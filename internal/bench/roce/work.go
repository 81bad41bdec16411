package roce

import "fmt"

// work is the work of the programs. Each uses the fields that concern it.
type work struct {
	size      int  // bytes of a message
	count     int  // messages
	seconds   int  // for programs that count time instead
	bandwidth bool // and not latency
}

func (w work) bytes() int { return w.size * w.count }

func bytes(n int) string {
	if n >= 1024 {
		return fmt.Sprintf("%d KiB", n/1024)
	}
	return fmt.Sprintf("%d B", n)
}

// sample is the result of a run and its cost.
type sample struct {
	typical, tail float64 // of latency: median and 99th percentile in µs
	rate          float64 // of bandwidth: MB/s, of 1048576 bytes
	cpu           float64 // seconds of both ends
}
