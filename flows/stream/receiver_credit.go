package stream

// Credits. A receive that is posted is promised to one peer at most: available is how many are not promised. A peer's
// promise is limit - taken, the messages that it may still send.

// grant promises what is available: one to each peer that has none, and what is left in turn, up to a window each. One is
// kept for each peer that is not there yet.
func (r *Receiver) grant() {
	r.grantFirst()
	for spare := r.spare(); spare > 0; spare = r.spare() {
		if !r.grantRound(spare) {
			return
		}
	}
}

// may is how many more messages a peer may be promised.
func (r *Receiver) may(p *peer) int {
	n := r.config.Window - int(p.promised())
	if most := r.config.Unacknowledged; most > 0 {
		n = min(n, most-int(p.limit-p.session.acknowledged))
	}
	return n
}

// grantFirst promises one to each peer that has none, beginning behind the one that got its last. A peer that uses up
// its own at once so gets no second one before others that wait get their first: they may be those whose
// messages a flow needs to give frames back.
func (r *Receiver) grantFirst() {
	first := r.needy
	for i := range r.peers {
		at := (first + i) % len(r.peers)
		if p := r.peers[at]; r.available > 0 && p.state.takes() && p.promised() == 0 && r.may(p) > 0 {
			r.give(p, 1)
			r.needy = at + 1
		}
	}
}

func (r *Receiver) spare() int { return r.available - (r.config.Peers - len(r.peers)) }

// grantRound gives each peer a few, and reports whether one wanted some.
func (r *Receiver) grantRound(spare int) (given bool) {
	r.turn++
	for i := range r.peers {
		p := r.peers[(r.turn+i)%len(r.peers)]
		if !p.state.takes() {
			continue
		}
		n := min(r.may(p), int(r.quantum()), spare)
		if n <= 0 {
			continue
		}
		r.give(p, n)
		spare -= n
		given = true
	}
	return given
}

func (r *Receiver) give(p *peer, n int) {
	if p.granted != nil {
		r.assign(p, n)
	}
	p.limit += uint64(n)
	r.available -= n
}

// takeBack ends a peer's promises. What it may write to comes back when it is detached.
func (r *Receiver) takeBack(p *peer) {
	if p.granted != nil {
		return
	}
	r.available += int(p.promised())
	p.limit = p.session.taken
}
