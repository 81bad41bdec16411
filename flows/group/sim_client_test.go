package group

// simClient appends records under a session. It repeats a record until it is acknowledged, also to
// another leader.
type simClient struct {
	*sim
	session      uint64
	acknowledged uint64 // sequences
	to           *simNode
	starts       uint64
	epoch        uint64
	next         uint64 // sequence to send next, to this leader
	window       uint64 // so many records at most are not acknowledged: with more, an old leader's log always has all that a new one acknowledges
	asks         uint64 // number of the question whether it leads; 0: none
}

// act sends a record, or finds another leader.
func (c *simClient) act() {
	if c.to == nil || !c.usable() || c.chance(5) {
		n := c.node()
		if c.chance(50) {
			n = c.oldest(n)
		}
		if c.ask(n); c.to == nil {
			return
		}
	}
	n := c.to
	if c.asks > 0 {
		if !c.usable() || n.sure < c.asks {
			return
		}
		c.asks = 0
		c.next = n.last(c.session) + 1
		if c.next <= c.acknowledged {
			c.broken("session %d: the leader %d of epoch %d has %d of %d acknowledged records", c.session, n.id, c.epoch, c.next-1, c.acknowledged)
		}
		for _, r := range n.memory[:n.commits.first] { // the leader's first answer counts as an acknowledgement: a client that has restarted knows nothing else
			if r.session == c.session {
				c.acknowledged = max(c.acknowledged, r.sequence)
			}
		}
	}
	if c.heard(); c.next > c.acknowledged+c.window {
		return
	}
	n.append(record{Place{c.epoch, n.log.End.Position + 1}, c.session, c.next})
	c.next++
	n.progressed()
	n.work()
	c.heard()
}

// ask asks a member whether it leads.
func (c *simClient) ask(n *simNode) {
	if c.to = nil; n.member == nil || n.frozen > 0 || n.commits == nil || !n.commits.Open() {
		return
	}
	c.to, c.starts, c.epoch = n, n.starts, n.member.Epoch()
	c.asks = n.member.Confirm()
	n.work()
}

// oldest returns the leader of the oldest epoch, which may not have heard of a newer one; without a leader n.
func (c *simClient) oldest(n *simNode) *simNode {
	found := n
	for _, o := range c.nodes {
		leads := o.member != nil && o.commits != nil
		if leads && (found.member == nil || found.commits == nil || o.member.Epoch() < found.member.Epoch()) {
			found = o
		}
	}
	return found
}

func (c *simClient) usable() bool {
	n := c.to
	return n.member != nil && n.frozen == 0 && n.starts == c.starts && n.member.Epoch() == c.epoch && n.commits != nil
}

// heard counts what the leader has acknowledged: records are acknowledged when they are committed.
func (c *simClient) heard() {
	if c.to == nil || c.asks > 0 || !c.usable() {
		return
	}
	for at := c.to.log.Committed; at > 0; at-- {
		if r := c.to.memory[at-1]; r.session == c.session {
			c.acknowledged = max(c.acknowledged, r.sequence)
			return
		}
	}
}

// last returns the last sequence of a session in a log.
func (n *simNode) last(session uint64) uint64 {
	for i := len(n.memory) - 1; i >= 0; i-- {
		if r := n.memory[i]; r.session == session {
			return r.sequence
		}
	}
	return 0
}

// check checks what must be true at the end of a run: every acknowledged record is committed once, in
// order.
func (s *sim) check() {
	last := map[uint64]uint64{}
	for i, r := range s.agreed {
		if r.session == 0 {
			continue
		}
		if r.sequence != last[r.session]+1 {
			s.broken("position %d has record %d of session %d after record %d", i+1, r.sequence, r.session, last[r.session])
		}
		last[r.session] = r.sequence
	}
	for _, c := range s.clients {
		if c.acknowledged > last[c.session] {
			s.broken("%d records of session %d were acknowledged, and the log has %d", c.acknowledged, c.session, last[c.session])
		}
	}
}
