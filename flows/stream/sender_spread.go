package stream

import (
	"errors"
	"fmt"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/rdma"
)

// spread is the state of a sender whose session has several links at the same time, each over a path of its own. Each
// message goes over the link with the fewest requests that its device has not completed. The receiver restores the order.
//
// A message may be posted over a second link while the device of a failed one still reads it. So Done reports it only when
// it is acknowledged and no device reads it any more, and its header is written before its first request alone.
//
// It belongs to the worker's thread.
type spread struct {
	links    []*link // connected, or failed and not detached: at most one for each path
	open     []*link // these, and those that are detached and not closed
	origins  bool    // the receiver accepts origins
	receiver uint32  // which one: all paths must lead to it
	from     uint64  // highest number that the receiver had when the first link was made
	over     bool    // all links have failed: none is added
	again    []uint64
	next     int // of again
}

var (
	errAllFailed = errors.New("all paths have failed")
	errTooLate   = errors.New("the other paths ended before this one was connected")
)

// beginSpread begins with the first link, whose receiver restores the order of messages, if it is such a link.
func (s *Sender) beginSpread(l *link) {
	if !l.several {
		return
	}
	l.limit = s.limit
	for number := s.out.first; number <= s.out.last; number++ {
		m := &s.out.slots[s.out.at(number)]
		m.over, m.again = 0, false
	}
	s.spread = &spread{links: make([]*link, 0, len(s.paths)), open: make([]*link, 0, len(s.paths)), origins: l.origins, receiver: l.receiver, from: s.sent,
		again: make([]uint64, 0, len(s.out.flight))}
	s.addLink(l)
}

func (s *Sender) addLink(l *link) {
	g := s.spread
	g.links, g.open = append(g.links, l), append(g.open, l)
	l.path.link = l
	s.stats.stale = true
}

// joins adds a link to the others. from is the lowest sequence that was not acknowledged when it was dialed. The error says
// why it cannot be one of them.
func (s *Sender) joins(l *link, h *protocol.Hello, from uint64) error {
	g := s.spread
	if g == nil || g.over || !s.Connected() {
		return errTooLate
	}
	have := s.begun + h.Next - 1
	switch {
	case !l.several:
		return errors.New("the receiver takes one path at a time here")
	case l.receiver != g.receiver:
		return fmt.Errorf("%s is not the receiver that the other paths lead to", l.path.address)
	case h.Next > s.sent-s.begun+1:
		return fmt.Errorf("%w: it expects message %d, and was sent %d", protocolError(protocol.BadSequence), h.Next, s.sent-s.begun)
	case have < g.from || h.Next < from: // what is between is not posted again over other links
		err := fmt.Errorf("%w: it expects message %d, and expected number %d before", protocolError(protocol.BadSequence), h.Next, max(g.from-s.begun+1, from))
		s.failAll(err)
		return err
	}
	l.limit = have + uint64(h.Window)
	s.addLink(l)
	return nil
}

// all returns the links that are not closed. g may be nil.
func (g *spread) all() []*link {
	if g == nil {
		return nil
	}
	return g.open
}

// owes reports whether messages must be posted again. g may be nil.
func (g *spread) owes() bool { return g != nil && g.next < len(g.again) }

// room reports whether a message can be posted over the link.
func (l *link) room(number uint64, depth int) bool {
	return l.cause == nil && number <= l.limit && l.pending()+l.probe.Places() < uint64(depth)
}

// pending returns how many requests the device has not completed.
func (l *link) pending() uint64 { return l.tail - l.head }

// choose returns the link for a message; nil: none has room.
func (g *spread) choose(number uint64, depth int) (least *link) {
	for _, l := range g.links {
		if l.room(number, depth) && (least == nil || l.pending() < least.pending()) {
			least = l
		}
	}
	return least
}

// postOverAll posts waiting messages in batches, one for each link.
func (s *Sender) postOverAll() {
	for s.Connected() && s.share() > 0 {
		for _, l := range s.spread.links {
			s.submit(l)
		}
		s.submitted()
	}
}

// share makes requests for the next messages, and returns their number. A message that must be posted again comes first:
// the receiver waits for it.
func (s *Sender) share() (n int) {
	for ; n < sendBatch; n++ {
		number, again := s.nextNumber()
		if number == 0 {
			return n
		}
		l := s.spread.choose(number, s.limits.send)
		if l == nil {
			return n
		}
		switch {
		case again:
			s.spread.next++
		case number > s.out.last:
			s.out.number()
		}
		s.requestOver(l, number)
	}
	return n
}

// nextNumber returns the number of the message to post next, and whether it is posted again; 0: there is none.
func (s *Sender) nextNumber() (number uint64, again bool) {
	for g := s.spread; g.owes(); g.next++ {
		if number = g.again[g.next]; number > s.confirm {
			return number, true
		}
	}
	if number = s.sent + 1; number > s.out.last && s.out.waiting.Len() == 0 {
		return 0, false
	}
	return number, false
}

// requestOver makes the request of a message over a link.
func (s *Sender) requestOver(l *link, number uint64) {
	slot, p := s.out.at(number), l.path
	m := &s.out.slots[slot]
	if number > s.sent { // otherwise a device may read the header now
		s.header(slot, number, s.spread.origins)
		s.sent = number
	}
	r := &p.requests[l.batch]
	*r = rdma.SendRequest{ID: l.tail, Op: rdma.Send, SGEs: m.elements}
	if l.tail%signalEvery == 0 {
		r.Flags = rdma.Signaled
	}
	for _, e := range s.elementsOf(slot)[:m.elements] {
		p.elements = append(p.elements, rdma.SGE{Addr: e.Addr + p.base - s.on.base, Length: e.Length, LKey: p.lkey})
	}
	l.numbers[l.tail&uint64(len(l.numbers)-1)] = number
	l.tail++
	l.batch++
	m.reads++
	m.over, m.again = uint8(p.number+1), false
	s.stats.count.bytes += uint64(m.length)
}

// submit posts the batch of a link. Its last request is signaled: a link may get no other one for long.
func (s *Sender) submit(l *link) {
	p, n := l.path, l.batch
	if n == 0 {
		return
	}
	p.requests[n-1].Flags = rdma.Signaled
	took, err := l.pair.PostSend(p.requests[:n], p.elements)
	l.batch, p.elements = 0, p.elements[:0]
	s.stats.count.posted += uint64(took)
	p.posted += uint64(took)
	for ; took < n; took++ {
		l.tail--
		s.unread(l.sent(l.tail))
	}
	if err != nil {
		s.failLink(l, fmt.Errorf("post a message: %w", err))
	}
}

// sent returns the number of the message of a request.
func (l *link) sent(request uint64) uint64 { return l.numbers[request&uint64(len(l.numbers)-1)] }

// unread records that a device does not read a message any more.
func (s *Sender) unread(number uint64) { s.out.slots[s.out.at(number)].reads-- }

// completedBefore records that the device of a link has completed the requests before one.
func (s *Sender) completedBefore(l *link, request uint64) {
	for ; l.head < min(request, l.tail); l.head++ {
		s.unread(l.sent(l.head))
	}
}

// retireRead reports the messages that the receiver has acknowledged and that no device reads.
func (s *Sender) retireRead() {
	for s.out.first <= s.confirm && s.out.slots[s.out.at(s.out.first)].reads == 0 {
		s.out.retire(true, s.position)
	}
}

// creditOverAll returns how many messages may be posted now.
func (s *Sender) creditOverAll() uint64 {
	to := s.sent
	for _, l := range s.spread.links {
		if l.cause == nil {
			to = max(to, l.limit)
		}
	}
	return to - s.sent
}

// takeAll is take over all links.
func (s *Sender) takeAll() (total int, err error) {
	for _, p := range s.paths {
		n, e := s.takeFrom(p)
		total += n
		if err == nil {
			err = e
		}
	}
	if total > 0 {
		s.release()
	}
	return total, err
}

// takeFrom processes the completions of one path.
func (s *Sender) takeFrom(p *senderPath) (total int, err error) {
	l := p.link
	if l == nil {
		return 0, p.event.quiet(p.queue)
	}
	n, err := s.drainLink(l)
	total = n
	for again := s.config.Events && !s.config.OnArm; again && err == nil; {
		if again, err = p.event.again(p.queue, n > 0); again && err == nil {
			n, err = s.drainLink(l)
			total += n
		}
	}
	s.repostOver(l)
	return total, err
}

// drainLink processes the completions of a link. Those of the path's link before it do not count.
func (s *Sender) drainLink(l *link) (total int, err error) {
	for {
		n, err := l.path.queue.Poll(s.polled[:])
		total += n
		for i := range s.polled[:n] {
			if c := &s.polled[i]; c.QPN == l.number && s.completedOver(l, c) {
				s.posts[s.heards], s.landings[s.heards] = s.receive(l.path, c.ID)
				s.heards++
			}
		}
		if n < len(s.polled) || err != nil {
			return total, err
		}
	}
}

// completedOver processes a completion, and reports whether its receive can be posted again.
func (s *Sender) completedOver(l *link, c *rdma.WorkCompletion) bool {
	switch {
	case c.Status != rdma.Success:
		s.failLink(l, c.Err())
		return false
	case c.ID&receiveID == 0:
		s.completedBefore(l, l.probe.Done(c.ID)+1)
		return false
	}
	if err := s.heardOver(l, s.region.At(s.landing(l.path, c.ID), uint64(min(c.Length, messageBytes)))); err != nil {
		s.failLink(l, err)
		return false
	}
	l.probe.Heard()
	return true
}

// heardOver processes a message of the receiver. What it acknowledges counts for all links, and its limit for one.
func (s *Sender) heardOver(l *link, message []byte) error {
	p, r := protocol.ParseProgress(message)
	if err := s.confirmed(&p, r); err != nil {
		return err
	}
	l.limit = max(l.limit, s.begun+min(p.Limit, mostAhead))
	return ends(&p)
}

// repostOver posts used receives of a link again.
func (s *Sender) repostOver(l *link) {
	n := s.heards
	if s.heards = 0; n == 0 || l.cause != nil {
		return
	}
	if _, err := l.pair.PostReceive(s.posts[:n], s.landings[:n]); err != nil {
		s.failLink(l, fmt.Errorf("post a receive: %w", err))
	}
}

// failLink records why a link has failed, and makes its goroutine end it.
func (s *Sender) failLink(l *link, cause error) {
	if l.cause == nil || flushed(l.cause) && !flushed(cause) {
		l.cause = cause
	}
	select {
	case l.broken <- struct{}{}:
	default:
	}
	s.stands()
}

// failAll fails all links.
func (s *Sender) failAll(cause error) {
	for _, l := range s.spread.links {
		s.failLink(l, cause)
	}
}

// stands chooses the link that stands for all: one that has not failed, if there is one.
func (s *Sender) stands() {
	s.link = nil
	for _, l := range s.spread.links {
		if s.link == nil || s.link.cause != nil && l.cause == nil {
			s.link = l
		}
	}
}

// detachLink gives up a link, which the caller closes. It returns the cause of the link's failure, and whether all links
// have failed. What went over it last, and is not acknowledged, will be posted again: although its device may have said
// that it has arrived, the receiver may not have taken it.
func (s *Sender) detachLink(l *link) (cause error, over bool) {
	_, _ = s.drainLink(l) // an error is reported later
	s.heards = 0          // the link's receives end with it
	s.release()
	s.removeLink(l)
	return l.cause, s.spread.over
}

// removeLink removes a link from those that are used.
func (s *Sender) removeLink(l *link) {
	g := s.spread
	g.links = without(g.links, l)
	l.path.link = nil
	s.stands()
	s.repeat(l.path)
	g.over = g.over || !s.Connected()
	s.stats.stale = true
}

// without removes a link from a list.
func without(all []*link, l *link) []*link {
	for i, one := range all {
		if one == l {
			return append(all[:i], all[i+1:]...)
		}
	}
	return all
}

// repeat makes the messages that were posted last over a path wait to be posted again, in order with those that do so
// already: the receiver may give credits for the first one alone.
func (s *Sender) repeat(p *senderPath) {
	g := s.spread
	g.again, g.next = g.again[:0], 0
	for number := max(s.confirm+1, s.out.first); number <= s.sent; number++ {
		m := &s.out.slots[s.out.at(number)]
		if m.over == uint8(p.number+1) {
			m.over, m.again = 0, true
			s.stats.count.resent++
		}
		if m.again {
			g.again = append(g.again, number)
		}
	}
}

// releasedLink is called when a link is closed: its device reads nothing any more. After the last one the next connection
// begins with what the receiver does not have then.
func (s *Sender) releasedLink(l *link) {
	s.clearQueue(l.path)
	s.completedBefore(l, l.tail)
	s.spread.open = without(s.spread.open, l)
	if !s.spread.over || len(s.spread.open) > 0 {
		s.release()
		s.stats.publish(s)
		return
	}
	s.spread = nil
	s.released()
}

// clearQueue removes the completions of a closed queue pair: another one may get its number.
func (s *Sender) clearQueue(p *senderPath) {
	for n := 1; n > 0; {
		var err error
		if n, err = p.queue.Poll(s.polled[:]); err != nil {
			return // Poll of the sender reports the error
		}
	}
}
