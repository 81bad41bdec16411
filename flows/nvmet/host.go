package nvmet

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/unifiedd/unifiedd/nvme/fabrics"
)

// host is the controller of one host, with its queues.
type host struct {
	fabrics.Controller
	admin  *session
	queues []*session // I/O queues, by number minus one
	heard  int64      // time of its last command
	parked []int32    // pending asynchronous event requests
	count  hostCounters
}

// Causes of the end of a host's queue.
var (
	errHungUp  = errors.New("the host has disconnected the queue")
	errReset   = errors.New("the host has reset its controller")
	errSilent  = errors.New("the host has connected a queue pair and does not say for what")
	errExpired = errors.New("the host's keep-alive time is over")
)

// connect executes a Connect command whose data has arrived.
func (s *Server) connect(o *operation) {
	p, c := o.session, fabrics.ConnectOf(&o.command)
	d, result, status := fabrics.ConnectDataOf(s.region.Bytes(o.buffers[0].frame))
	switch {
	case status != fabrics.Success:
	case p.host != nil:
		status = fabrics.CommandSequence | fabrics.DoNotRetry
	case c.Format != 0:
		status = fabrics.ConnectFormat | fabrics.DoNotRetry
	case c.Queue != p.id:
		result, status = fabrics.InvalidCommand(fabrics.OffQueue), fabrics.ConnectInvalid|fabrics.DoNotRetry
	case c.Size < 2 || c.Size > uint32(s.config.Depth):
		result, status = fabrics.InvalidCommand(fabrics.OffSize), fabrics.ConnectInvalid|fabrics.DoNotRetry
	case p.id == fabrics.AdminQueue:
		result, status = s.welcome(p, c, d)
	default:
		result, status = s.join(p, d)
	}
	if status == fabrics.Success {
		p.entries, p.noFlow, result, p.who = c.Size, c.NoFlow, uint64(p.host.ID), d.Identity()
		if p.proof = p.host.Subsystem.Session(d.HostNQN); p.proof != nil {
			p.trusted = false
			result |= fabrics.MustAuthenticate
		}
		s.proven(p)
	}
	o.result = result
	s.answer(o, status)
}

// welcome makes a controller for a host.
func (s *Server) welcome(p *session, c fabrics.ConnectCommand, d fabrics.ConnectData) (uint64, fabrics.Status) {
	sub := s.find(d.Subsystem)
	switch {
	case sub == nil:
		return fabrics.InvalidSubsystem, fabrics.ConnectInvalid | fabrics.DoNotRetry
	case d.Controller != fabrics.AnyController:
		return fabrics.InvalidController, fabrics.ConnectInvalid | fabrics.DoNotRetry
	case !sub.Allows(d.HostNQN):
		return fabrics.InvalidHost, fabrics.ConnectHostRefused | fabrics.DoNotRetry
	case s.borrows(sub, &d):
		return fabrics.InvalidIdentifier, fabrics.ConnectInvalid | fabrics.DoNotRetry
	}
	keepAlive := c.KeepAlive
	if sub.Discovery() && keepAlive == 0 {
		keepAlive = discoveryKeepAlive
	}
	h := &host{Controller: fabrics.Controller{ID: s.newID(), Subsystem: sub, Host: d, KeepAlive: keepAlive, At: p.local}, admin: p, heard: s.now, queues: make([]*session, s.config.Queues),
		parked: make([]int32, 0, fabrics.AsyncEvents)}
	h.count.queues.Add(1)
	s.hosts = append(s.hosts, h)
	s.publish()
	p.host = h
	s.config.Log.Info("host connected", "target", s.config.Name, "host", d.HostNQN, "subsystem", sub.NQN, "controller", h.ID)
	return 0, fabrics.Success
}

// borrows reports whether a host comes with the identifier with which another host is registered. It would have
// that one's rights: a host identifier proves nothing, and reports show them to every host.
func (s *Server) borrows(sub *fabrics.Subsystem, d *fabrics.ConnectData) bool {
	for _, n := range sub.Namespaces {
		if n.Reservations == nil {
			continue
		}
		if other := n.Reservations.Other(d.Identity()); other != "" {
			s.config.Log.Warn("host refused: another host is registered with its host identifier (give each host an /etc/nvme/hostid of its own; if it has another name by now, let a registered host preempt the old registration)",
				"target", s.config.Name, "host", d.HostNQN, "registered", other, "subsystem", sub.NQN, "namespace", n.ID)
			return true
		}
	}
	return false
}

// newID returns an unused controller ID. There is one, because each host has a session.
func (s *Server) newID() uint16 {
	c := &s.config
	for {
		if s.lastID++; s.lastID < c.FirstController || s.lastID > c.LastController {
			s.lastID = c.FirstController
		}
		if !slices.ContainsFunc(s.hosts, func(h *host) bool { return h.ID == s.lastID }) {
			return s.lastID
		}
	}
}

// publish publishes the list of hosts for Stats.
func (s *Server) publish() {
	known := slices.Clone(s.hosts)
	s.count.known.Store(&known)
	s.count.hosts.Set(uint64(len(known)))
}

// part removes an I/O queue from the host.
func (h *host) part(p *session) {
	h.queues[p.id-1] = nil
	h.count.queues.Set(h.count.queues.Load() - 1)
}

// find returns the subsystem with an NQN.
func (s *Server) find(nqn string) *fabrics.Subsystem {
	for _, sub := range s.subsystems {
		if sub.NQN == nqn {
			return sub
		}
	}
	return nil
}

// join adds an I/O queue to a host's controller.
func (s *Server) join(p *session, d fabrics.ConnectData) (uint64, fabrics.Status) {
	i := slices.IndexFunc(s.hosts, func(h *host) bool { return h.ID == d.Controller })
	if i < 0 || s.hosts[i].Host.HostNQN != d.HostNQN || s.hosts[i].Host.Host != d.Host || s.hosts[i].Subsystem.NQN != d.Subsystem {
		return fabrics.InvalidController, fabrics.ConnectInvalid | fabrics.DoNotRetry
	}
	h := s.hosts[i]
	switch {
	case !h.Ready() || h.Subsystem.Discovery():
		return 0, fabrics.CommandSequence | fabrics.DoNotRetry
	case int(p.id) > len(h.queues):
		return fabrics.InvalidCommand(fabrics.OffQueue), fabrics.ConnectInvalid | fabrics.DoNotRetry
	case h.queues[p.id-1] != nil:
		return 0, fabrics.CommandSequence
	}
	h.queues[p.id-1], p.host = p, h
	h.count.queues.Add(1)
	return 0, fabrics.Success
}

// unhost removes a queue that has ended from its host. The end of the admin queue ends the host.
func (s *Server) unhost(p *session) {
	h := p.host
	if h == nil {
		return
	}
	p.host = nil
	if p.id != fabrics.AdminQueue {
		h.part(p)
		return
	}
	s.endQueues(h, errAdminGone)
	s.hosts = slices.DeleteFunc(s.hosts, func(other *host) bool { return other == h })
	s.publish()
}

// endQueues ends all I/O queues of a host.
func (s *Server) endQueues(h *host, why error) {
	for _, q := range h.queues {
		if q != nil {
			s.fail(q, why)
			h.part(q)
			q.host = nil
		}
	}
}

// administer executes an admin command, or a Fabrics command other than Connect.
func (s *Server) administer(o *operation) {
	c, h := &o.command, o.session.host
	s.count.admin.Add(1)
	switch {
	case c.Opcode == fabrics.OpFabrics && c.Fabrics == fabrics.Disconnect && o.session.id != fabrics.AdminQueue:
		o.hangup = true
		s.answer(o, fabrics.Success)
	case o.session.id != fabrics.AdminQueue:
		s.answer(o, fabrics.InvalidOpcode|fabrics.DoNotRetry)
	case c.Opcode == fabrics.OpAsyncEvent && h.Ready():
		s.park(o)
	default:
		s.ask(o)
	}
}

// ask makes the controller execute a command, with a buffer for its answer.
func (s *Server) ask(o *operation) {
	n := o.session.host.DataLength(&o.command)
	d := &o.command.Data
	switch {
	case n == 0:
		s.fill(o)
	case n != uint64(d.Length) || n > uint64(s.pools[large].size):
		s.answer(o, fabrics.InvalidSGLLength|fabrics.DoNotRetry)
	case d.Place != fabrics.InHost:
		s.answer(o, fabrics.InvalidSGLType|fabrics.DoNotRetry)
	default:
		s.need(o, 0, d.Length)
	}
}

// fill writes the controller's answer into the buffer.
func (s *Server) fill(o *operation) {
	h := o.session.host
	if h == nil {
		s.answer(o, fabrics.CommandSequence|fabrics.DoNotRetry)
		return
	}
	var room []byte
	if b := &o.buffers[1]; b.where != nowhere {
		room = s.region.Bytes(b.frame)
		clear(room)
	}
	result, status := h.Admin(&o.command, room)
	o.result = result
	s.answer(o, status)
	if h.Reset() {
		s.endQueues(h, errReset)
	}
	s.tell(h)
}

// park keeps an asynchronous event request until there is an event.
func (s *Server) park(o *operation) {
	h := o.session.host
	if len(h.parked) == fabrics.AsyncEvents {
		s.answer(o, fabrics.AsyncEventLimit|fabrics.DoNotRetry)
		return
	}
	o.state = opParked
	h.parked = append(h.parked, o.number)
	s.tell(h)
}

// tell answers asynchronous event requests with the pending events.
func (s *Server) tell(h *host) {
	for len(h.parked) > 0 {
		result, is := h.Event()
		if !is {
			return
		}
		o := &s.operations[h.parked[0]]
		h.parked = h.parked[:copy(h.parked, h.parked[1:])]
		o.result = result
		s.answer(o, fabrics.Success)
	}
}

// The interval between two checks of the hosts, the time for connecting, and the grace beyond a
// host's keep-alive time.
const (
	lookEvery = 200 * time.Millisecond
	silence   = 15 * time.Second
	grace     = 1 * time.Second
)

// discoveryKeepAlive is the keep-alive time in milliseconds of discovery controllers whose hosts
// request none. The kernel's target uses the same value (NVMET_DISC_KATO_MS).
const discoveryKeepAlive = 120_000

// keepAlive returns how long a host may be silent; 0: without limit. The host's own keep-alive time
// counts only while its controller is ready, as with the kernel (nvmet_start_ctrl in
// drivers/nvme/target/core.c). Before that the host may have to authenticate, which takes seconds,
// so the time for connecting applies.
func (h *host) keepAlive() time.Duration {
	limit := time.Duration(h.KeepAlive)*time.Millisecond + grace
	switch {
	case h.KeepAlive == 0:
		return 0
	case !h.Ready():
		return max(limit, silence)
	}
	return limit
}

// look ends hosts that are silent for too long.
func (s *Server) look() {
	if s.now-s.looked < int64(lookEvery) {
		return
	}
	s.looked = s.now
	for _, h := range s.hosts {
		if limit := h.keepAlive(); limit > 0 && s.now-h.heard > int64(limit) && h.admin.state == sessionOpen {
			s.count.expired.Add(1)
			s.fail(h.admin, fmt.Errorf("%w: nothing for %v", errExpired, limit))
		}
	}
	for i := range s.sessions {
		if p := &s.sessions[i]; p.state == sessionOpen && (p.host == nil || !p.trusted) && s.now-p.since > int64(silence) {
			s.fail(p, errSilent)
		}
	}
}
