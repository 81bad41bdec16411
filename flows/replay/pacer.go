package replay

import (
	"time"

	"github.com/unifiedd/unifiedd/flows/config"
)

// pacer computes when packets are due. It belongs to the worker's thread.
type pacer struct {
	pace   config.Pace
	maxGap time.Duration // longest time between two packets; 0: as recorded
	start  time.Time     // due time of the first packet; zero: none yet

	known    bool          // last is set
	last     uint64        // newest recorded time so far
	recorded time.Duration // from the first packet to last, with shortened gaps
	packets  float64       // that are due so far
	bits     float64       // of those packets
}

// unpaced reports whether packets leave as fast as they can.
func (p *pacer) unpaced() bool { return p.pace.By == config.PaceTop }

// due returns when the next packet is due. The packet has this number of bytes and, if timed, this
// recorded time.
func (p *pacer) due(bytes uint32, recorded uint64, timed bool, now time.Time) time.Time {
	if p.start.IsZero() {
		p.start = now
	}
	after := time.Duration(0)
	switch p.pace.By {
	case config.PaceRecorded:
		after = p.elapsed(recorded, timed)
	case config.PaceTimes:
		after = time.Duration(float64(p.elapsed(recorded, timed)) / p.pace.Value)
	case config.PacePackets:
		after = time.Duration(p.packets * 1e9 / p.pace.Value)
	case config.PaceBits:
		after = time.Duration(p.bits * 1e9 / p.pace.Value)
	}
	p.packets++
	p.bits += float64(bytes) * 8
	return p.start.Add(after)
}

// elapsed returns the time of the recording up to a packet. A packet that is older than an earlier
// one leaves with the earlier one.
func (p *pacer) elapsed(recorded uint64, timed bool) time.Duration {
	if !timed {
		return p.recorded
	}
	if p.known && recorded > p.last {
		gap := time.Duration(min(recorded-p.last, uint64(maxSum)))
		if p.maxGap > 0 {
			gap = min(gap, p.maxGap)
		}
		p.recorded += min(gap, maxSum-p.recorded)
	}
	if !p.known || recorded > p.last {
		p.last, p.known = recorded, true
	}
	return p.recorded
}

// maxSum prevents overflow of sums of times: 73 years.
const maxSum = time.Duration(1<<61 - 1)

// newRecording makes the next packet due together with the last one.
func (p *pacer) newRecording() { p.known = false }

// shift delays all later packets.
func (p *pacer) shift(d time.Duration) { p.start = p.start.Add(d) }
