package porttest

// exchange passes n messages from the sender to the receiver and checks them.
func (g *rig) exchange(n int) {
	g.Helper()
	for ; n > 0; n -= g.Window {
		k := min(n, g.Window)
		g.post(g.batch(k))
		g.settle()
		if g.Stored {
			g.readBack(k)
		}
	}
}

// batch composes the next n messages.
func (g *rig) batch(n int) []parcel {
	var ps []parcel
	for range n {
		ps = append(ps, g.compose()...)
	}
	return ps
}

// post sends messages. Before that it supplies a network's receiver with the frames for them.
func (g *rig) post(ps []parcel) {
	g.Helper()
	if !g.Stored {
		g.provide(ps)
	}
	g.sendAll(ps)
}

// provide supplies a network's receiver with the frames that messages need.
func (g *rig) provide(ps []parcel) {
	g.Helper()
	need := g.landed - len(g.supplied)
	for _, p := range ps {
		if !p.frame.Continues() && !p.spoilt {
			need += g.landing(p.msg.size())
		}
	}
	if g.Noisy {
		need += 8
	}
	g.supplyAll(g.empties(max(0, min(need, g.Receiver.Limits().Supply-len(g.supplied)))))
}

// sendAll sends frames for which the device has room.
func (g *rig) sendAll(ps []parcel) {
	g.Helper()
	g.until("Send within the limits", func() bool {
		ps = ps[g.send(ps):]
		return len(ps) == 0
	})
}

// supplyAll supplies frames for which the device has room.
func (g *rig) supplyAll(ps []parcel) {
	g.Helper()
	g.until("Supply within the limits", func() bool {
		ps = ps[g.supply(ps):]
		return len(ps) == 0
	})
}

// settle waits until everything that was sent has been reaped and has arrived.
func (g *rig) settle() {
	g.Helper()
	g.kick()
	g.until("wait for messages under way", func() bool {
		g.reap(Spare)
		g.recv(Spare)
		return g.settled()
	})
}

// settled reports whether nothing is in flight.
func (g *rig) settled() bool {
	if g.Stored {
		return len(g.sent) == 0 && len(g.supplied) == 0
	}
	for g.never[g.due] {
		g.due++
	}
	return len(g.sent) == 0 && (g.lossy || g.due == g.next)
}

// readBack requests the n messages sent last from a device that stores.
func (g *rig) readBack(n int) {
	g.Helper()
	for _, m := range g.stored[len(g.stored)-n:] {
		g.supplyAll(g.request(m))
	}
	g.stored = nil
	g.settle()
}
