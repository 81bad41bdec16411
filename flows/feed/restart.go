package feed

import "time"

// A sender that has restarted may count from the beginning again, under the same name or under none, or come back to
// the name of the session before. Each of its messages then looks like a copy of one that was given out. Such packets are
// kept until it is clear what they are:
//
//   - A line has gone back if its packets have numbers that it had passed, by farBack or more, and whose messages were given
//     out longer ago than Config.Gap, which is how long anything may be late. With the name of the session before, a line
//     has gone back if it has had packets of the present one, which is that old.
//   - The sender has restarted if every line from which the session has come has gone back, for Config.Gap. A line
//     from which nothing comes any more is waited for for aloneTime.
//   - A line that goes on where it was has not gone back: what was kept of it were copies.
//
// If the buffers are full before that, it is decided at once.
type restart struct {
	open  bool
	old   bool          // the packets name the session before
	held  []held        // by sequence number
	since time.Duration // when the first one came
	other time.Duration // when a packet of the present session last came
}

const (
	farBack   = 16          // messages; fewer may be a sender's last ones, again, while it has nothing new
	aloneTime = time.Second // from when the other lines were last heard
)

// At says what time it is, of any clock that does not go back, before Receive.
func (a *Arbiter) At(now time.Duration) {
	switch {
	case now-a.now >= a.config.Gap: // nothing was given out since
		a.aged, a.younger, a.turned = a.next, a.next, now
	case now-a.turned >= a.config.Gap:
		a.aged, a.younger, a.turned = a.younger, a.next, now
	}
	a.now = now
}

// isServer reports whether a line is the retransmission server, whose packets are older than those of the others.
func (a *Arbiter) isServer(from int) bool { return a.config.Server && from == len(a.lines)-1 }

// goesBack reports whether a packet may be of a sender that has restarted. old: it names the session before.
func (a *Arbiter) goesBack(from int, p *Packet, old bool) bool {
	l, g := &a.lines[from], &a.restart
	if p.Count == 0 || !l.began || a.isServer(from) || g.open && g.old != old {
		return false
	}
	end := p.Sequence + p.Count
	switch {
	case old:
		return l.back || a.now-a.begun >= a.config.Gap
	case l.back:
		return end <= l.next || l.passes(p.Sequence)
	}
	return end <= a.aged && end <= l.next && l.next-end >= farBack
}

// passes reports whether a line that has gone back goes on from there with a message, and comes by those that it had before.
func (l *line) passes(n uint64) bool {
	d := int64(n - l.run)
	return l.run-l.start >= farBack && -farBack <= d && d <= farBack
}

// goesOn notes that a line has had a packet of the present session.
func (a *Arbiter) goesOn(from int, p *Packet) {
	l, g := &a.lines[from], &a.restart
	if a.isServer(from) || p.Count == 0 && (p.Sequence < l.next || l.back && l.passes(p.Sequence)) {
		return // a heartbeat of a sender that has restarted says nothing new
	}
	g.other, l.back = a.now, false
	for i := range a.lines {
		if a.lines[i].back {
			return
		}
	}
	a.dropRestart()
}

// keepForRestart keeps a packet that a restarted sender may have sent, and decides.
func (a *Arbiter) keepForRestart(from int, p Packet, payload []byte, old bool) Reason {
	l, g := &a.lines[from], &a.restart
	if !g.open {
		g.open, g.old, g.since, g.other = true, old, a.now, a.now
	}
	if !l.back {
		l.back, l.start, l.run = true, p.Sequence, p.Sequence
	}
	l.run = max(l.run, p.Sequence+p.Count)
	why := a.insert(&g.held, from, p, payload)
	if a.changing = a.hasRestarted(); !a.changing && len(a.free) == 0 {
		a.dropRestart() // the other lines go on, or were heard just now
	}
	return why
}

// hasRestarted decides whether the sender has restarted.
func (a *Arbiter) hasRestarted() bool {
	g := &a.restart
	if !g.open || len(g.held) < 2 {
		return false
	}
	full, quiet := len(a.free) == 0, a.now-g.other
	if a.allBack() {
		return full || a.now-g.since >= a.config.Gap
	}
	return quiet >= aloneTime || full && quiet >= a.config.Gap
}

// allBack reports whether all lines that have had the session have gone back.
func (a *Arbiter) allBack() bool {
	for i := range a.lines {
		if l := &a.lines[i]; l.began && !l.back && !a.isServer(i) {
			return false
		}
	}
	return true
}

// beginRestarted begins the session of a sender that has restarted. Everything of the one before is given out.
func (a *Arbiter) beginRestarted() {
	g, name := &a.restart, a.session
	switch {
	case a.config.Counter != nil:
		name = a.nextSession()
	case g.old:
		name = a.before
	}
	a.begin(name, g.held[0].packet.Sequence)
	a.held, g.held, g.open = g.held, a.held[:0], false
	for _, h := range a.held {
		a.high = max(a.high, h.packet.Sequence+h.packet.Count)
	}
	for i := range a.lines {
		if l := &a.lines[i]; l.back {
			l.began, l.next, l.back = true, l.run, false
		}
	}
	if a.finished {
		a.upTo = a.high
	}
	a.total.restarts.Add(1)
}

// dropRestart drops what was kept: the sender has not restarted, and they were copies, or late.
func (a *Arbiter) dropRestart() {
	g := &a.restart
	if !g.open {
		return
	}
	for _, h := range g.held {
		if l := &a.lines[h.line]; g.old {
			l.refused[OldSession].Add(1)
		} else {
			l.repeats.Add(h.packet.Count)
			l.late.Add(h.packet.Count)
		}
		a.free = append(a.free, h.buffer)
	}
	g.held, g.open = g.held[:0], false
	for i := range a.lines {
		a.lines[i].back = false
	}
}

// finishRestart decides when nothing more comes.
func (a *Arbiter) finishRestart() {
	if a.changing = a.restart.open && len(a.restart.held) > 1 && a.allBack(); !a.changing {
		a.dropRestart()
	}
}
