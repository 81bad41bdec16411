package peers

// checkPaths is Check for a sink with several devices. One of them may be without a link: what counts is whether the
// peers are connected. A device that has failed permanently ends the flow, as the only one would.
func (s *Sink) checkPaths() (waits, ends error) {
	if _, ends = s.device.Check(); ends != nil {
		return nil, ends
	}
	for _, d := range s.further {
		if _, ends = d.Check(); ends != nil {
			return nil, ends
		}
	}
	return s.missing(), nil
}
