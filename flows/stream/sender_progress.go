package stream

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/rdma"
)

// Poll processes messages of the receiver and completions. Then it posts as many messages as it
// can. now is the time for latencies, which are as exact as Poll is frequent. The error says that
// the device is gone.
func (s *Sender) Poll(now time.Time) error {
	s.now, s.wall = int64(now.Sub(s.opened)), now.UnixNano()
	n, err := s.take()
	if n == 0 && err == nil && s.rests() {
		return nil
	}
	if err != nil {
		err = fmt.Errorf("sender %s: %w", s.config.Name, err)
	}
	s.post()
	s.stats.publish(s)
	return err
}

// rests reports whether there is nothing to post and nothing to publish.
func (s *Sender) rests() bool {
	return s.Connected() && s.out.waiting.Len() == 0 && s.sent == s.out.last && !s.stats.stale && !s.spread.owes()
}

// take processes all completions, arms the queue, and returns the number of completions. It posts
// receives again only at the end, so that a receiver that sends without pause cannot keep the
// worker here.
func (s *Sender) take() (total int, err error) {
	if s.spread != nil {
		return s.takeAll()
	}
	if s.link == nil {
		return 0, s.on.event.quiet(s.on.queue)
	}
	n, err := s.drain()
	total = n
	for again := s.config.Events && !s.config.OnArm; again && err == nil; {
		if again, err = s.on.event.again(s.on.queue, n > 0); again && err == nil {
			n, err = s.drain()
			total += n
		}
	}
	if total > 0 {
		s.release()
		s.repost()
	}
	return total, err
}

func (s *Sender) drain() (total int, err error) {
	for {
		n, err := s.on.queue.Poll(s.polled[:])
		total += n
		for i := range s.polled[:n] {
			if c := &s.polled[i]; c.QPN == s.link.number && s.completed(c) {
				s.posts[s.heards], s.landings[s.heards] = s.receive(s.on, c.ID)
				s.heards++
			}
		}
		if n < len(s.polled) || err != nil { // later completions wait until the next messages are posted, so that their packets leave first
			return total, err
		}
	}
}

// completed processes a completion, and reports whether its receive can be posted again.
func (s *Sender) completed(c *rdma.WorkCompletion) bool {
	switch {
	case c.Status != rdma.Success:
		s.fail(c.Err())
		return false
	case c.ID&receiveID == 0:
		s.done = max(s.done, s.link.probe.Done(c.ID))
		return false
	}
	if err := s.heard(s.region.At(s.landing(s.on, c.ID), uint64(min(c.Length, messageBytes)))); err != nil {
		s.fail(err)
		return false
	}
	s.link.probe.Heard()
	return true
}

// receive returns the receive request with an ID of a path.
func (s *Sender) receive(p *senderPath, id uint64) (rdma.ReceiveRequest, rdma.SGE) {
	return rdma.ReceiveRequest{ID: id, SGEs: 1}, s.landingFor(p, id)
}

// landingFor returns the memory of a receive for the device of a path.
func (s *Sender) landingFor(p *senderPath, id uint64) rdma.SGE {
	return rdma.SGE{Addr: p.base + s.landing(p, id), Length: messageBytes, LKey: p.lkey}
}

// repost posts used receives again.
func (s *Sender) repost() {
	n := s.heards
	if s.heards = 0; n == 0 || !s.Connected() {
		return
	}
	if _, err := s.link.pair.PostReceive(s.posts[:n], s.landings[:n]); err != nil {
		s.fail(fmt.Errorf("post a receive: %w", err))
	}
}

// heard processes a message of the receiver.
func (s *Sender) heard(message []byte) error {
	p, r := s.read(message)
	if err := s.confirmed(&p, r); err != nil {
		return err
	}
	s.limit = max(s.limit, s.begun+min(p.Limit, mostAhead))
	return ends(&p)
}

// confirmed records what the receiver has acknowledged. why says what is wrong with its message.
func (s *Sender) confirmed(p *protocol.Progress, why protocol.Reason) error {
	switch {
	case why != protocol.None:
		return protocolError(why)
	case p.Session != s.session:
		return protocolError(protocol.BadSession)
	case p.Sequence > s.sent-s.begun:
		return fmt.Errorf("%w: it acknowledges message %d, and was sent %d", protocolError(protocol.BadSequence), p.Sequence, s.sent-s.begun)
	}
	if to := s.begun + p.Sequence; to >= s.confirm {
		s.confirm, s.position = to, p.Position
	}
	return nil
}

// ends returns why the receiver ends the queue pair after its message; nil: it does not.
func ends(p *protocol.Progress) error {
	if p.Status != protocol.None {
		return fmt.Errorf("the receiver ended it: %w", p.Status)
	}
	return nil
}

// read parses a progress message, with or without credits.
func (s *Sender) read(message []byte) (protocol.Progress, protocol.Reason) {
	c := s.link.credits
	if k, _ := protocol.KindOf(message); k != protocol.KindGrant || c == nil {
		return protocol.ParseProgress(message)
	}
	g, r := protocol.ParseGrant(message)
	if r == protocol.None && g.Session == s.session {
		r = c.add(message, &g)
	}
	return g.Progress, r
}

// mostAhead is the greatest permitted limit. It prevents an overflow.
const mostAhead = 1 << 62

// errNonsense is a protocol error of the peer. The error wraps a protocol.Reason, too.
var errNonsense = errors.New("the peer's answer is invalid")

func protocolError(r protocol.Reason) error { return fmt.Errorf("%w: %w", errNonsense, r) }

// flushed reports whether an error is only a consequence of an earlier one.
func flushed(err error) bool { return errors.Is(err, rdma.WorkFlushed) }

// FD returns a descriptor that polls readable when Poll has work; -1 without Events and after
// Close. It stays the same over all connections of a path. FDs has those of all paths in use.
func (s *Sender) FD() int {
	if s.on == nil || s.on.queue == nil {
		return -1
	}
	return s.on.queue.FD()
}

// FDs appends the descriptors that poll readable when Poll has work.
func (s *Sender) FDs(dst []unix.PollFd) []unix.PollFd {
	if s.spread == nil {
		if fd := s.FD(); fd >= 0 {
			dst = append(dst, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
		}
		return dst
	}
	for _, p := range s.paths {
		if fd := p.queue.FD(); fd >= 0 {
			dst = append(dst, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
		}
	}
	return dst
}

// Arm makes FDs poll readable when Poll has work, with SenderConfig.OnArm. It reports whether Poll may have work already.
// An error is that of Poll, too.
func (s *Sender) Arm() (work bool) {
	if s.spread == nil {
		return s.link != nil && s.on.event.arm(s.on.queue)
	}
	for _, p := range s.paths {
		work = p.link != nil && p.event.arm(p.queue) || work
	}
	return work
}

// arming arms a completion queue that the same thread polls.
type arming struct {
	armed bool // the queue will give an event at its next completion
}

// again is called when the queue was found empty; came says that it had completions before. It arms
// the queue, and reports whether the caller must poll it again. If the queue is armed and was
// empty, it consumes the event of completions that were polled before the event.
func (a *arming) again(q rdma.CompletionQueue, came bool) (bool, error) {
	events, err := q.Acknowledge()
	if err != nil || a.armed && events == 0 && !came {
		return false, err
	}
	err = q.Arm(false)
	a.armed = err == nil
	return a.armed, err
}

// arm arms the queue if it is not armed. It reports whether the caller must poll it again before it waits.
func (a *arming) arm(q rdma.CompletionQueue) bool {
	again, err := a.again(q, false)
	return again || err != nil
}

// quiet consumes events of a queue that need not wake a thread now.
func (a *arming) quiet(q rdma.CompletionQueue) error {
	if !a.armed {
		return nil
	}
	events, err := q.Acknowledge()
	a.armed = events == 0
	return err
}
