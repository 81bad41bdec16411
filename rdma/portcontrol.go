package rdma

// SendControl queues a SEND, by the queue pair of a number, of bytes at a region's address that are the caller's and stay so: they are in no frame
// that Reap gives back, and are to stay as they are while the device may read them, which is until UnderWay says that the request is done. A request
// that is not to be told of is known to be done with a later one that is; each signalEvery-th, and one that fills the queue, is told of in any case. It is
// false when there is no room now, or no such queue pair. Stats do not count such messages.
func (p *MessagePort) SendControl(number int, addr uint64, length uint32, told bool) bool {
	s := p.senderOf(number)
	if p.closed || s == nil {
		return false
	}
	if s.full() {
		p.collect()
	}
	if s.full() {
		return false
	}
	s.control(s.form, addr, length)
	if last := &s.queued[len(s.queued)-1]; (told || s.full()) && last.Flags&Signaled == 0 {
		s.signal(last)
	}
	p.queue(s)
	return true
}

// UnderWay is how many requests of a queue pair the device is not known to be done with, as of the last completions that were taken.
func (p *MessagePort) UnderWay(number int) int {
	if s := p.senderOf(number); s != nil {
		return s.underWay()
	}
	return 0
}

// Broken gives the numbers of queue pairs that a request of SendControl failed on, each once; Cause says why. It returns how many there were.
func (p *MessagePort) Broken(dst []int) int {
	n := copy(dst, p.broken)
	p.broken = p.broken[:copy(p.broken, p.broken[n:])]
	return n
}

// breaks notes a request that failed and has no frame to say so.
func (p *MessagePort) breaks(number int, c *WorkCompletion) {
	s := p.senders[number]
	if _, _, frames := readID(c.ID); c.Status != Success && frames == 0 && !s.broken {
		s.broken = true
		p.broken = append(p.broken, number)
	}
}
