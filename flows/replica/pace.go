package replica

import "time"

// Copies for a follower that lacks records take processors, network and disk from the records that clients append.
// So a link sends copies a little faster than clients append, which is enough to catch up.
const (
	// copyShare is how many copies a link sends for each record that clients append.
	copyShare = 4.0 / 3
	// leastCopies is how many copies a second a link may send at least.
	leastCopies = 20000
	// quiet is how long nobody appends before copies have no limit.
	quiet = time.Second
	// paceWindow is the time over which the rate of records is measured.
	paceWindow = 100 * time.Millisecond
	// burst is the time of which a link may use the copies later, if the worker was away.
	burst = 20 * time.Millisecond
	// looksEvery is how often a link looks whether its follower comes nearer.
	looksEvery = 5 * time.Second
	// copiesTold is how many copies have one completion, which wakes the worker. There are more frames than that.
	copiesTold = 16
)

// pace measures how many records a second a leader appends.
type pace struct {
	since    time.Time // begin of the window
	from     uint64    // position of the last record then
	rate     float64   // records a second, smoothed; 0: not known
	appended time.Time // end of the last window with a record
}

// begin says that the next record has another position than the one after the last.
func (p *pace) begin(last uint64) { *p = pace{from: last} }

// look says which record is the last one at a time. It reports whether a window has ended.
func (p *pace) look(last uint64, now time.Time) (ended bool) {
	if p.since.IsZero() {
		p.since, p.from = now, last
		return false
	}
	span := now.Sub(p.since)
	if span < paceWindow {
		return false
	}
	rate := float64(last-p.from) / span.Seconds()
	if last != p.from {
		p.appended = now
	}
	if p.rate == 0 {
		p.rate = rate
	}
	p.rate += (rate - p.rate) / 4
	p.since, p.from = now, last
	return true
}

// limit returns how many copies a second a link may send for a share of the records; 0: any number, because
// nobody appends.
func (p *pace) limit(share float64, now time.Time) float64 {
	if now.Sub(p.appended) > quiet {
		return 0
	}
	return max(leastCopies, share*p.rate)
}

// bucket limits the copies of a link.
type bucket struct {
	share    float64   // see copyShare
	limit    float64   // copies a second; 0: any number
	tokens   float64   // copies that may be sent now
	filled   time.Time // when tokens was last raised
	sent     uint64    // copies
	lookedAt time.Time // when the follower's distance was last looked at
	distance uint64    // then: records that it lacked
}

// fill adds the copies that may be sent since the last call. A worker that was away for longer than burst does not
// make up for it.
func (b *bucket) fill(p *pace, now time.Time) {
	b.limit = p.limit(max(b.share, copyShare), now)
	if b.filled.IsZero() {
		b.filled = now
	}
	b.tokens = min(max(b.tokens, 0)+b.limit*now.Sub(b.filled).Seconds(), b.limit*burst.Seconds())
	b.filled = now
}

// empty reports whether no copy may be sent now.
func (b *bucket) empty() bool { return b.limit > 0 && b.tokens < 1 }

// take says that a copy was sent.
func (b *bucket) take() {
	b.tokens--
	b.sent++
}

// look raises the share of a follower that does not come nearer: it would never catch up. One that does gets the usual
// share.
func (b *bucket) look(distance uint64, now time.Time) {
	switch {
	case b.lookedAt.IsZero():
	case now.Sub(b.lookedAt) < looksEvery:
		return
	case distance < b.distance:
		b.share = copyShare
	default:
		b.share = max(b.share, copyShare) * copyShare
	}
	b.lookedAt, b.distance = now, distance
}

// measure keeps the rate of records, shows what followers lack that catch up, and ends links that are stalled.
func (l *Links) measure() {
	window := l.now.Sub(l.pace.since)
	if !l.pace.look(l.held.last, l.now) {
		return
	}
	lacking, limit, copies := uint64(0), 0.0, uint64(0)
	for _, k := range l.slots {
		if k == nil || k.over || !k.feeds || k.copies == nil || l.held.last < k.next {
			continue
		}
		b := &k.copies.bucket
		distance := l.held.last + 1 - k.next
		b.look(distance, l.now)
		lacking += distance
		limit += b.limit
		copies += b.sent
		b.sent = 0
		if k.copies.look(k.next, window) > l.stallTime {
			l.endStalled(k)
		}
	}
	l.stats.lacking.Set(lacking)
	l.stats.copyLimit.Set(uint64(limit))
	l.stats.copyRate.Set(uint64(float64(copies) / window.Seconds()))
}
