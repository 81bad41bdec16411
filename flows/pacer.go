package flows

import (
	"time"

	"github.com/unifiedd/unifiedd/flows/config"
)

// pacer says when packets are to leave. It belongs to the worker's thread.
type pacer struct {
	pace  config.Pace
	most  time.Duration // between two packets of a recording; 0: as it is
	begun time.Time     // when the first packet was due; zero: it was not yet

	known    bool          // there is a last
	last     uint64        // the latest time in the recording so far
	recorded time.Duration // from the first packet to it, pauses shortened
	packets  float64       // whose turns have come
	bits     float64       // theirs
}

// top reports whether packets leave as they can.
func (p *pacer) top() bool { return p.pace.By == config.PaceTop }

// due is when the next packet is to leave, which has so many bytes and was recorded at a time, if it has one.
func (p *pacer) due(bytes uint32, recorded uint64, timed bool, now time.Time) time.Time {
	if p.begun.IsZero() {
		p.begun = now
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
	return p.begun.Add(after)
}

// elapsed is the time of the recording up to a packet. One that is behind later ones leaves with them.
func (p *pacer) elapsed(recorded uint64, timed bool) time.Duration {
	if !timed {
		return p.recorded
	}
	if p.known && recorded > p.last {
		gap := time.Duration(min(recorded-p.last, uint64(longestGap)))
		if p.most > 0 {
			gap = min(gap, p.most)
		}
		p.recorded += min(gap, longestGap-p.recorded)
	}
	if !p.known || recorded > p.last {
		p.last, p.known = recorded, true
	}
	return p.recorded
}

// longestGap keeps sums of times from running over: 73 years.
const longestGap = time.Duration(1<<61 - 1)

// cut has the next packet leave with the last one: it is of another recording.
func (p *pacer) cut() { p.known = false }

// wait has all that is due later leave later.
func (p *pacer) wait(d time.Duration) { p.begun = p.begun.Add(d) }
