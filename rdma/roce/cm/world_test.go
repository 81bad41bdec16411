package cm

import (
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/cm"
	"github.com/unifiedd/unifiedd/rdma/roce/mad"
)

// world is two machines, the network between them, and a clock.
type world struct {
	testing.TB
	rnd   *rand.Rand
	now   instant
	hosts [2]*host
	mail  []letter
	rates struct{ lose, double, delay int } // in percent
}

// host is a machine with programs that use it.
type host struct {
	*world
	*machine
	number   int
	ip       netip.Addr
	listener *listener
	qpn      uint32
	plans    []plan
	ends     []*connection // connections that are, or were, established
}

// letter is a message in flight.
type letter struct {
	datagram
	to int
	at instant
}

// plan is a later action of a program.
type plan struct {
	at instant
	do func()
}

// number is a queue pair with only a number. Its state never changes.
type number struct {
	rdma.QueuePair
	qpn uint32
}

func (n number) QPN() uint32                  { return n.qpn }
func (n number) Config() rdma.QueuePairConfig { return rdma.QueuePairConfig{Transport: rdma.RC} }

// quick has short times, so that tests take little time of the world's clock.
var quick = Config{Connections: 64, Response: 10, Lifetime: 8, Retries: 15, Service: 14}

const millisecond instant = 1e6

func newWorld(t testing.TB, seed uint64, c Config) *world {
	w := &world{TB: t, rnd: rand.New(rand.NewPCG(seed, 0))}
	for i := range w.hosts {
		h := &host{world: w, number: i, ip: netip.AddrFrom4([4]byte{10, 0, 0, byte(1 + i)}), qpn: 16}
		h.machine = newMachine(c, 0x1000+uint64(i), func() rdma.MTU { return rdma.MTU1024 })
		h.listener = &listener{at: netip.AddrPortFrom(netip.IPv6Unspecified(), port), port: port, requests: make(chan *connection, 8)}
		h.ports[port] = []*listener{h.listener}
		w.hosts[i] = h
	}
	return w
}

// way returns the path from a host to the other one.
func (h *host) way() peerPath {
	return peerPath{local: rdma.GIDOf(h.ip), remote: rdma.GIDOf(h.other().ip)}
}

func (h *host) other() *host { return h.hosts[1-h.number] }

// do makes the machine do something, and passes its messages to the network.
func (h *host) do(f func()) {
	h.machine.now = h.world.now
	f()
	for _, d := range h.out {
		h.carry(d)
	}
	h.out = h.out[:0]
	for _, c := range h.over {
		close(c.done)
	}
	h.over = nil
}

// carry delivers a message to the other host: once, twice or not at all, now or later.
func (h *host) carry(d datagram) {
	for range 1 + h.draw(h.rates.double) - h.draw(h.rates.lose) {
		l := letter{d, 1 - h.number, h.world.now + millisecond/10}
		if h.draw(h.rates.delay) == 1 {
			l.at += instant(h.rnd.Int64N(int64(20 * millisecond)))
		}
		h.mail = append(h.mail, l)
	}
}

// draw returns 1 with a probability of rate percent, otherwise 0.
func (w *world) draw(rate int) int {
	if w.rnd.IntN(100) < rate {
		return 1
	}
	return 0
}

// later makes a program do something after a random time of up to most.
func (h *host) later(most instant, f func()) {
	h.plans = append(h.plans, plan{h.world.now + instant(h.rnd.Int64N(int64(most))), f})
}

func (h *host) end(reads uint8) *cm.End {
	h.qpn++
	e := cm.Defaults(number{qpn: h.qpn})
	e.Reads, e.RemoteReads = reads, reads
	return &e
}

// connect makes a program send a REQ to the other host.
func (h *host) connect() (c *connection) {
	h.do(func() {
		if c = h.add(h.way()); c != nil {
			h.sendREQ(c, h.end(4), mad.Address{From: netip.AddrPortFrom(h.ip, 40000), To: h.other().ip}, port)
		}
	})
	return c
}

// serve makes programs do what is due: decide on requests and react to answers.
func (h *host) serve(all []*connection) {
	for len(h.listener.requests) > 0 {
		c := <-h.listener.requests
		h.later(30*millisecond, func() { h.decide(c) })
	}
	for _, c := range all {
		select {
		case a := <-c.answers:
			if a.event == cm.ConnectResponse {
				h.later(10*millisecond, func() {
					h.do(func() {
						if h.sendRTU(c, number{qpn: c.ours.qpn}) {
							h.ends = append(h.ends, c)
						}
					})
				})
			}
		default:
		}
	}
}

// decide accepts a request, or sometimes rejects it.
func (h *host) decide(c *connection) {
	h.do(func() {
		if h.draw(20) == 1 {
			h.refuse(c, []byte("no"))
			return
		}
		e := h.end(2)
		if h.sendREP(c, e, endpoint{e.Queue.QPN(), 7}) {
			h.ends = append(h.ends, c)
		}
	})
}

// run lets time pass.
func (w *world) run(span instant, all *[2][]*connection) {
	for end := w.now + span; ; {
		at := w.next()
		if at > end {
			w.now = end
			return
		}
		w.now = max(w.now, at)
		w.step()
		for i, h := range w.hosts {
			h.serve(all[i])
		}
	}
}

// next returns when the next thing happens.
func (w *world) next() instant {
	at := never
	for _, l := range w.mail {
		at = min(at, l.at)
	}
	for _, h := range w.hosts {
		at = min(at, h.timers.first())
		for _, p := range h.plans {
			at = min(at, p.at)
		}
	}
	return at
}

// step does everything that is due.
func (w *world) step() {
	due := func(at instant) bool { return at <= w.now }
	mail := w.mail
	w.mail = nil
	for _, l := range mail {
		if !due(l.at) {
			w.mail = append(w.mail, l)
			continue
		}
		h := w.hosts[l.to]
		h.do(func() { h.receive(h.way(), l.bytes[:]) })
	}
	for _, h := range w.hosts {
		h.do(h.tick)
		plans := h.plans
		h.plans = nil
		for _, p := range plans {
			if due(p.at) {
				p.do()
			} else {
				h.plans = append(h.plans, p)
			}
		}
	}
}
