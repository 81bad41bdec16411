package transport

import (
	"errors"
	"math"
	"time"

	"github.com/unifiedd/unifiedd/rdma/roce/wire"
)

// RateControl is how a queue pair slows down when its packets meet congestion: DCQCN ("Congestion Control for
// Large-Scale RDMA Deployments", SIGCOMM 2015, section 5). A queue pair is subject to it if its packets are marked as ECN
// capable (wire.ECT0). It has no timer of its own: what its timers would have done by then is worked out when it
// wants to send.
type RateControl struct {
	// Line is the rate of the link in bits per second. A queue pair whose rate comes up to it is not limited. 0: no rate
	// control.
	Line uint64
	// Least is the rate in bits per second below which a queue pair is not slowed down; default a thousandth of Line.
	Least uint64
	// Gain is g, the weight of a new mark in the estimate of congestion; default 1/256.
	Gain float64
	// Decay is K, after which the estimate falls if there is no CNP; default 55 µs.
	Decay time.Duration
	// Period is T and Bytes is B: after each, the rate rises by one step; defaults 55 µs and 10 MB.
	Period time.Duration
	Bytes  uint64
	// Steps is F, the number of steps in which the rate returns half way to where it was before the CNP; default 5.
	Steps int
	// Additive and Hyper are what later steps add, in bits per second; defaults a thousandth and a hundredth of Line: 40
	// and 400 Mbit/s at 40 Gbit/s.
	Additive, Hyper uint64
}

var errRates = errors.New("make a RoCE engine: the rates of RateControl are not Least <= Line, and its gain is not between 0 and 1")

func (c *RateControl) setDefaults() error {
	defaultTo(&c.Least, c.Line/1000)
	defaultTo(&c.Gain, 1.0/256)
	defaultTo(&c.Decay, 55*time.Microsecond)
	defaultTo(&c.Period, 55*time.Microsecond)
	defaultTo(&c.Bytes, 10_000_000)
	defaultTo(&c.Steps, 5)
	defaultTo(&c.Additive, max(1, c.Line/1000))
	defaultTo(&c.Hyper, max(1, c.Line/100))
	if c.Least > c.Line || c.Gain <= 0 || c.Gain > 1 || c.Decay < 0 || c.Period < 0 || c.Steps < 0 {
		return errRates
	}
	return nil
}

func defaultTo[T comparable](v *T, to T) {
	var zero T
	if *v == zero {
		*v = to
	}
}

// A queue pair that could not send for a while may make up for this much of it at once: the thread that drives the device
// may sleep that long. The bytes bound what a switch has to hold.
const (
	burstTime  = 200 * time.Microsecond
	burstBytes = 64 << 10
)

// rate is the state of rate control of a queue pair. Rates are in bytes per nanosecond.
type rate struct {
	limited    bool
	now        float64 // R_C
	target     float64 // R_T
	congestion float64 // alpha
	decayed    Time    // when congestion last fell or rose
	stepped    Time    // when the last period ended
	bytes      uint64  // since the last step by bytes
	periods    int     // steps since the last CNP
	volumes    int
	cut        Time // when the rate was last reduced
	next       Time // when the next packet may leave
}

// perNanosecond converts bits per second.
func perNanosecond(bits uint64) float64 { return float64(bits) / 8e9 }

// slowDown handles a CNP.
func (q *QueuePair) slowDown(now Time) {
	c, r := &q.engine.config.Rate, &q.rate
	if c.Line == 0 || q.attrs.Address.TrafficClass&wire.CE != wire.ECT0 {
		return
	}
	if !r.limited {
		*r = rate{limited: true, now: perNanosecond(c.Line), congestion: 1, next: now}
	} else if now < r.cut.After(congestionPause) {
		return // several CNPs report the same congestion
	}
	q.engine.count(RateCuts)
	q.raise(now)
	r.target = r.now
	r.now = max(r.now*(1-r.congestion/2), perNanosecond(c.Least))
	r.congestion = (1-c.Gain)*r.congestion + c.Gain
	r.decayed, r.stepped, r.cut = now, now, now
	r.bytes, r.periods, r.volumes = 0, 0, 0
}

// raise does what the timers would have done until now.
func (q *QueuePair) raise(now Time) {
	c, r := &q.engine.config.Rate, &q.rate
	if n := now.periods(r.decayed, c.Decay); n > 0 {
		r.congestion *= math.Pow(1-c.Gain, float64(n))
		r.decayed = r.decayed.After(time.Duration(n) * c.Decay)
	}
	n := now.periods(r.stepped, c.Period)
	r.stepped = r.stepped.After(time.Duration(n) * c.Period)
	for ; n > 0 && r.limited; n-- {
		r.periods++
		q.step()
	}
}

// periods returns how many periods have ended since.
func (t Time) periods(since Time, period time.Duration) int64 {
	if since == never || period == 0 {
		return 0
	}
	return max(0, int64(t-since)/int64(period))
}

// step raises the rate: first half way back to the target in each step, then with a target that rises, too.
func (q *QueuePair) step() {
	c, r := &q.engine.config.Rate, &q.rate
	switch fewest, most := min(r.periods, r.volumes), max(r.periods, r.volumes); {
	case fewest > c.Steps:
		r.target += perNanosecond(c.Hyper)
	case most > c.Steps:
		r.target += perNanosecond(c.Additive)
	}
	line := perNanosecond(c.Line)
	r.target = min(r.target, line)
	if r.now = (r.now + r.target) / 2; r.now >= 0.999*line {
		r.limited = false
	}
}

// mayLeave reports whether a limited queue pair may send a packet now. If not, the engine looks again in time.
func (q *QueuePair) mayLeave() bool {
	r, e := &q.rate, q.engine
	q.raise(e.time)
	if !r.limited {
		return true
	}
	if r.next > e.time {
		e.pause(q)
		return false
	}
	r.next = max(r.next, e.time-r.burst())
	return true
}

// burst is for how long the queue pair may have been held back.
func (r *rate) burst() Time { return min(Time(burstTime), Time(burstBytes/r.now)) }

// left counts a packet of a limited queue pair.
func (q *QueuePair) left(p *Packet) {
	c, r := &q.engine.config.Rate, &q.rate
	n := uint64(p.Length) + headerBytes
	r.next += Time(float64(n) / r.now)
	if r.bytes += n; r.bytes >= c.Bytes {
		r.bytes -= c.Bytes
		r.volumes++
		q.step()
	}
}

// headerBytes is about what a packet has besides its payload: Ethernet with preamble and gap, IP, UDP, RoCE headers and
// checksums.
const headerBytes = 82

// pause makes the engine look at a queue pair again when it may send.
func (e *Engine) pause(q *QueuePair) {
	if l := &e.lists[pausing]; l.n == 0 {
		e.resumes = q.rate.next
	}
	e.resumes = min(e.resumes, q.rate.next)
	e.lists[pausing].add(q)
}

// resume lets the queue pairs send that may now.
func (e *Engine) resume(now Time) {
	l := &e.lists[pausing]
	if l.n == 0 || now < e.resumes {
		return
	}
	e.resumes = math.MaxInt64
	for range l.n {
		if q := l.next(); q.rate.next > now {
			e.pause(q)
		} else {
			e.lists[sending].add(q)
			e.lists[answering].add(q)
		}
	}
}

// Rate returns the rate to which a queue pair is limited, in bits per second; 0: it is not.
func (q *QueuePair) Rate() uint64 {
	if !q.rate.limited {
		return 0
	}
	return uint64(q.rate.now * 8e9)
}
