package measure

import (
	"fmt"
	"strings"
)

// LatencyHeader is the header line of a latency table.
const LatencyHeader = " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] "

// Rule is the line above and below a table.
var Rule = strings.Repeat("-", 87)

// BandwidthHeader returns the header line of a bandwidth table.
func BandwidthHeader(u Unit) string {
	return fmt.Sprintf(" #bytes     #iterations    BW peak[%v]    BW average[%v]   MsgRate[Mpps]", u, u)
}

// Row returns the line of a latency table, without a newline.
func (l Latency) Row() string {
	return fmt.Sprintf(" %-7d %d          %-7.2f        %-7.2f      %-7.2f  \t       %-7.2f     \t%-7.2f\t\t%-7.2f \t\t%-7.2f",
		l.Bytes, l.Iterations, l.Min, l.Max, l.Typical, l.Average, l.Stdev, l.P99, l.P999)
}

// Row returns the line of a bandwidth table, without a newline. Small values in Gb/sec have more
// digits.
func (b Bandwidth) Row() string {
	if b.Unit == Gb && b.Average < 0.1 {
		return fmt.Sprintf(" %-7d    %d           %-7.6f            %-7.6f            %-7.6f", b.Bytes, b.Iterations, b.Peak, b.Average, b.Rate)
	}
	return fmt.Sprintf(" %-7d    %-10d       %-7.2f            %-7.2f\t\t   %-7.6f", b.Bytes, b.Iterations, b.Peak, b.Average, b.Rate)
}
