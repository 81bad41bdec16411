package main

import (
	"fmt"
	"io"
	"maps"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/status"
)

// whatIsTaken describes which packets a capture has, and whether the host still receives them.
func whatIsTaken(from config.From, s status.Flow) string {
	what, end := "every packet that arrives", "; taken: the host does not see it"
	switch from.Mirror {
	case config.MirrorBoth:
		what = "every packet that arrives or leaves"
	case config.MirrorEgress:
		what = "every packet that leaves"
	}
	if from.Mirror != "" {
		end = "; copies, the host receives the packets as before"
	}
	if from.Filter != "" {
		what = "packets that match " + spelledOut(from.Filter)
	}
	if s.Engine == string(config.EngineXDP) && from.Mirror != "" {
		end += " (as they look on the wire)"
	}
	return what + end
}

// afterCount is the reason of packets that came after the number that was asked for. They are not lost.
const afterCount = "beyond_count"

// unready is the reason of packets that the host got because no socket was ready. If each queue has one, they came before
// the capture was ready, or after its end.
const unready = "kernel_no_socket"

// losses returns how many packets a flow lost, as text with the reasons.
func losses(s *status.Flow) string {
	some := maps.Clone(s.Dropped)
	delete(some, afterCount)
	n := lost(s)
	if n == 0 {
		return "0 lost"
	}
	return fmt.Sprintf("%d lost: %s", n, nonzero(some))
}

// lost returns how many packets a flow lost.
func lost(s *status.Flow) (n uint64) {
	for reason, k := range s.Dropped {
		if reason != afterCount {
			n += k
		}
	}
	return n
}

// summarize prints a summary of a capture, with the reasons of losses.
func summarize(w io.Writer, s status.Flow) {
	fmt.Fprintf(w, "%d packets captured, %d bytes; %s\n", s.Written.Packets, s.Written.Bytes, losses(&s))
	if n := s.Dropped[afterCount]; n > 0 {
		fmt.Fprintf(w, "%d packets came after those that -c asks for\n", n)
	}
	passed := maps.Clone(s.Passed)
	if n := passed[unready]; n > 0 && len(s.Left) == 0 {
		delete(passed, unready)
		fmt.Fprintf(w, "%d packets came before the capture was ready, or after its end: the host got them\n", n)
	}
	if some := nonzero(passed); some != "nothing" {
		fmt.Fprintf(w, "left to the host: %s\n", some)
	}
	fmt.Fprintf(w, "copies per byte: ours %s, the kernel's %s\n", perByte(s.CopiedBytes, s.Bytes), perByte(s.KernelBytes, s.Bytes))
}
