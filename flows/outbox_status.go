package flows

// observe adds what is known of the peers.
func (b *outbox) observe(s *FlowStatus) {
	out := &SendsStatus{Device: b.target.Name}
	for i, p := range b.fan.Stats() {
		sent := &p.Sender
		out.Peers = append(out.Peers, PeerStatus{
			Name: b.names[i], Address: sent.Address, State: sent.State, Error: sent.Cause, Certificate: sent.Peer,
			Offered: p.Offered, Acknowledged: sent.Acknowledged, Dropped: p.Dropped, Waiting: uint64(sent.Waiting), InFlight: uint64(sent.InFlight),
			Method: string(sent.Method), Credit: sent.Credit, Bytes: sent.Bytes, Resent: sent.Resent, Connections: sent.Connections, Failures: sent.Failures, Latency: sent.Latency,
		})
	}
	s.Sends = out
	s.FrameTimes = &FrameTimes{Submitted: b.times.Submitted.Distribution(), Done: b.times.Done.Distribution()}
}

// announce is what the log says of the peers' end.
func (b *outbox) announce() []any { return []any{"device", b.target.Name, "peers", len(b.names)} }

// check says what is missing of the device and the peers, and what ends the flow.
func (b *outbox) check() (waits, ends error) {
	if err := b.dials.check(); err != nil {
		return nil, err
	}
	if waits, ends = b.target.Check(); waits != nil || ends != nil {
		return waits, ends
	}
	return b.lacking(), nil
}
