package bpf

// Verdict is what became of a packet. Every packet has exactly one.
type Verdict uint8

// The verdicts, as in enum verdict of unifiedd.bpf.c.
const (
	// Redirected packets were handed to the socket of their queue.
	Redirected = Verdict(captureVerdictVERDICT_REDIRECTED)
	// NoMatch packets were left to the kernel: the filter does not want them.
	NoMatch = Verdict(captureVerdictVERDICT_NO_MATCH)
	// TooLong packets were left to the kernel: wanted, but above Config.MaxLen.
	TooLong = Verdict(captureVerdictVERDICT_TOO_LONG)
	// NoSocket packets were left to the kernel: wanted, and short enough, but no
	// socket is bound to their queue; in a dispatcher also those that were to be dropped there.
	NoSocket = Verdict(captureVerdictVERDICT_NO_SOCKET)
	// Unclear packets were left to the kernel: the user's program returned what means nothing.
	Unclear = Verdict(captureVerdictVERDICT_UNCLEAR)
	// Dropped packets nobody got, as a rule or the user's program says.
	Dropped = Verdict(captureVerdictVERDICT_DROPPED)
	// Verdicts is the number of verdicts.
	Verdicts = int(captureVerdictVERDICT_COUNT)
)

var verdictNames = [Verdicts]string{
	Redirected: "redirected", NoMatch: "no_match", TooLong: "too_long", NoSocket: "no_socket",
	Unclear: "unclear", Dropped: "dropped",
}

// String returns the name of the verdict as metrics use it.
func (v Verdict) String() string {
	if int(v) >= Verdicts {
		return "unknown"
	}
	return verdictNames[v]
}

// Counter counts packets and their bytes, from the Ethernet header on, without
// the frame check sequence.
type Counter struct {
	Packets, Bytes uint64
}

// Counters are indexed by [Verdict].
type Counters [Verdicts]Counter

func (c *Counters) add(d Counters) {
	for v := range d {
		c[v].Packets += d[v].Packets
		c[v].Bytes += d[v].Bytes
	}
}

// Since is what was counted after before.
func (c Counters) Since(before Counters) Counters {
	for v := range c {
		c[v].Packets -= before[v].Packets
		c[v].Bytes -= before[v].Bytes
	}
	return c
}

// Total is the sum over all verdicts: what reached the program.
func (c Counters) Total() Counter {
	var sum Counter
	for _, k := range c {
		sum.Packets += k.Packets
		sum.Bytes += k.Bytes
	}
	return sum
}
