package cm

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/cm"
	"github.com/unifiedd/unifiedd/rdma/roce"
	"github.com/unifiedd/unifiedd/rdma/roce/mad"
)

// Manager is the connection manager of a device.
type Manager struct {
	device *roce.Device
	config Config
	start  time.Time
	// wake is an eventfd(2) that ends a poll.
	wake  wake
	gsi   *gsiQP
	ended chan struct{} // closed by the goroutine
	stop  atomic.Bool

	mu        sync.Mutex
	machine   *machine
	listeners []*listener
	held      int // routes, requests and connections that are not closed
	closed    bool
	failure   error // why the goroutine has ended before Close
	once      sync.Once
	err       error // of Close
}

var _ cm.Manager = (*Manager)(nil)

// Open opens the connection manager of a device, which has one at a time. The caller closes it
// before the device.
func Open(d *roce.Device, c Config) (*Manager, error) {
	m, err := open(d, c)
	if err != nil {
		return nil, fmt.Errorf("open the connection manager of %v: %w", d, err)
	}
	return m, nil
}

func open(d *roce.Device, c Config) (*Manager, error) {
	c.setDefaults()
	if err := c.check(); err != nil {
		return nil, err
	}
	m := &Manager{device: d, config: c, start: time.Now(), ended: make(chan struct{})}
	m.machine = newMachine(c, d.Capabilities().NodeGUID, m.mtu)
	var err error
	if m.wake, err = newWake(); err != nil {
		return nil, err
	}
	if m.gsi, err = openGSI(d, m.wake.signal); err != nil {
		return nil, errors.Join(err, m.wake.close())
	}
	d.Manage(m.counters)
	go m.run()
	return m, nil
}

// mtu returns the port's MTU; 0 if the port cannot be queried.
func (m *Manager) mtu() rdma.MTU {
	p, err := m.device.Port(1)
	if err != nil {
		return 0
	}
	return p.ActiveMTU
}

// counters returns the counters for the device.
func (m *Manager) counters() (all []roce.Counter) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.machine.counts.own[lookupsCut] = m.gsi.handles.cuts()
	m.machine.counts.each(func(name string, value uint64) { all = append(all, roce.Counter{Name: name, Value: value}) })
	return all
}

// do calls f with the machine, and wakes the goroutine, which serves.
func (m *Manager) do(f func(*machine)) {
	m.mu.Lock()
	m.machine.now = m.clock()
	f(m.machine)
	m.mu.Unlock()
	m.wake.signal()
}

// clock returns the machine's time.
func (m *Manager) clock() instant { return instant(time.Since(m.start)) }

// run receives messages and handles deadlines until Close.
func (m *Manager) run() {
	defer close(m.ended)
	for !m.stop.Load() {
		if err := m.round(); err != nil {
			m.fail(err)
			return
		}
	}
}

// fail ends all connections and listeners, because the device is gone.
func (m *Manager) fail(why error) {
	m.mu.Lock()
	m.failure = why
	for _, c := range m.machine.locals {
		m.machine.finish(c, &cm.Error{Step: "connection", Event: cm.DeviceRemoval, Kind: cm.ErrDeviceGone})
	}
	over := m.machine.over
	m.machine.over = nil
	listeners := slices.Clone(m.listeners)
	m.mu.Unlock()
	reportEnded(over)
	for _, l := range listeners {
		_ = l.Close()
	}
}

// round waits for an event and handles it.
func (m *Manager) round() error {
	m.wake.take()
	_, _ = m.gsi.cq.Acknowledge()
	if err := m.gsi.cq.Arm(false); err != nil {
		return err
	}
	some, err := m.gsi.take(m)
	if err != nil {
		return err
	}
	at := m.serve()
	if some || m.stop.Load() {
		return nil
	}
	m.sleep(at)
	return nil
}

// came passes a message to the machine.
func (m *Manager) came(w peerPath, b []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.machine.now = m.clock()
	m.machine.receive(w, b)
}

// serve handles deadlines, reports ended connections, and sends messages. It returns the time of
// its next call.
func (m *Manager) serve() instant {
	m.mu.Lock()
	m.machine.now = m.clock()
	m.machine.tick()
	over := m.machine.over
	m.machine.over = nil
	m.mu.Unlock()
	reportEnded(over)
	m.gsi.release(m)
	m.send()
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.machine.timers.first()
}

// reportEnded puts the queue pairs of ended connections into ERR, so that outstanding requests are
// flushed, and then reports the end.
func reportEnded(over []*connection) {
	for _, c := range over {
		if c.queue != nil {
			_ = c.queue.Modify(rdma.Attributes{State: rdma.Error}, rdma.MaskState) // fails only if it is closed
		}
		close(c.done)
	}
}

// send sends as many messages as there is room for. The rest follows when others complete.
func (m *Manager) send() {
	m.mu.Lock()
	out := slices.Clone(m.machine.out)
	m.machine.out = m.machine.out[:0]
	m.mu.Unlock()
	for i := range out {
		if !m.gsi.send(&out[i], m) {
			m.putBack(out[i:])
			return
		}
	}
}

func (m *Manager) putBack(rest []datagram) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.machine.out = append(rest, m.machine.out...)
}

// dropped counts a lost message.
func (m *Manager) dropped(why counter) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.machine.counts.add(why)
}

// sleep waits until a time or an event.
func (m *Manager) sleep(until instant) {
	poll := []unix.PollFd{{Fd: int32(m.wake.fd), Events: unix.POLLIN}, {Fd: int32(m.gsi.cq.FD()), Events: unix.POLLIN}}
	var limit *unix.Timespec
	if until != never {
		t := unix.NsecToTimespec(int64(max(0, until-m.clock())))
		limit = &t
	}
	_, _ = unix.Ppoll(poll, limit, nil) // after EINTR the caller calls round again
}

// Open returns how many routes, listeners, requests and connections are not closed.
func (m *Manager) Open() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.held + len(m.listeners)
}

// closeTimeout is how long Close waits for peers to confirm the end of their connections.
const closeTimeout = time.Second

// Close ends everything. Peers have a second to confirm.
func (m *Manager) Close() error {
	m.once.Do(func() { m.err = m.close() })
	return m.err
}

func (m *Manager) close() error {
	for _, l := range m.shut() {
		_ = l.Close()
	}
	var all []*connection
	m.do(func(x *machine) {
		for _, c := range x.locals {
			if c.state != timeWait {
				x.disconnect(c, cm.ErrClosed)
				all = append(all, c)
			}
		}
	})
	m.settle(all)
	m.stop.Store(true)
	m.wake.signal()
	<-m.ended
	m.serve() // sends the remaining messages
	m.device.Manage(nil)
	return errors.Join(m.gsi.close(), m.wake.close())
}

// shut makes the manager refuse everything new, and returns the listeners.
func (m *Manager) shut() []*listener {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	return slices.Clone(m.listeners)
}

// settle waits until the peers have confirmed, for at most a second.
func (m *Manager) settle(all []*connection) {
	limit := time.NewTimer(closeTimeout)
	defer limit.Stop()
	for _, c := range all {
		select {
		case <-c.confirmed:
		case <-m.ended:
			return
		case <-limit.C:
			return
		}
	}
}

// usable returns the error of a manager that is closed or has failed. The caller holds the lock.
func (m *Manager) usable() error {
	switch {
	case m.closed:
		return fmt.Errorf("the connection manager of %v is %w", m.device, cm.ErrClosed)
	case m.failure != nil:
		return fmt.Errorf("the connection manager of %v: %w: %w", m.device, cm.ErrDeviceGone, m.failure)
	}
	return nil
}

// Config configures a manager. The zero value of each field selects a default. Times are 5-bit
// exponents: 4.096 µs << n.
type Config struct {
	// Connections bounds the connections at a time, including those being set up; default 1024.
	Connections int
	// Response is the time to answer a message, for us and for the peers, without Lifetime; default
	// 19, which is 2.1 s.
	Response uint8
	// Lifetime is the time of a packet in the network; default 16, which is 0.27 s, the kernel's
	// value for RoCE.
	Lifetime uint8
	// Retries is how often a message is retransmitted, at most 15; default 15.
	Retries uint8
	// Service is how long an MRA asks a peer to wait until our program accepts; default 22, which is 17 s.
	Service uint8
}

func (c *Config) setDefaults() {
	if c.Connections == 0 {
		c.Connections = 1024
	}
	for _, f := range []struct {
		of *uint8
		to uint8
	}{{&c.Response, 19}, {&c.Lifetime, 16}, {&c.Retries, 15}, {&c.Service, 22}} {
		if *f.of == 0 {
			*f.of = f.to
		}
	}
}

func (c *Config) check() error {
	switch {
	case c.Connections < 1 || c.Connections > 1<<16:
		return fmt.Errorf("%d connections: it can have 1 to %d", c.Connections, 1<<16)
	case c.Response > 31 || c.Lifetime > 30 || c.Service > 31:
		return fmt.Errorf("times %d, %d and %d: they are at most 31, 30 and 31", c.Response, c.Lifetime, c.Service)
	case c.Retries > 15:
		return fmt.Errorf("%d retries: at most 15", c.Retries)
	}
	return nil
}

// maxResponse bounds how long one message of a peer can make us wait: 68 s, as long as the kernel asks
// peers to.
const maxResponse = 24

// responseTimeout returns how long to wait for an answer of a peer with that response time.
func (c *Config) responseTimeout(response uint8) instant {
	return instant(mad.Duration(min(response, maxResponse)) + 2*mad.Duration(c.Lifetime))
}

// counter is a counter of the manager. Messages are also counted by kind and by error.
type counter uint8

const (
	resent        counter = iota // retransmitted messages
	duplicate                    // messages received again
	unmatched                    // messages of no connection here
	unexpected                   // messages that do not fit the state of their connection
	rejected                     // refused requests: no listener, no room, impossible parameters
	stale                        // requests with a queue pair that is connected or in time-wait
	probes                       // probes begun, because a request named a connected queue pair
	probesHeld                   // such requests within ProbeRest
	probesAlive                  // probes of peers that still have the connection
	probesGone                   // probes of peers without the connection, which then ended
	full                         // requests refused because the listener or the manager had no room
	addressLimit                 // half-open connections ended for newer ones of their address
	halfOpenLimit                // half-open connections ended for newer ones of other addresses
	givenUp                      // connections ended because the peer did not answer
	established                  // connections established
	queueFull                    // messages not sent: too many were queued
	unresolved                   // messages not sent: the peer's address was not resolved, or too many lookups were running
	unreachable                  // messages dropped: the sender's address was not resolved
	lookupsCut                   // lookups replaced by newer ones
	otherSource                  // datagrams not from queue pair 1, or not to an address of ours
	cut                          // connections whose time-wait was ended early for others
	counters
)

var counterNames = [counters]string{"resent", "duplicate", "unmatched", "unexpected", "rejected", "stale", "probes", "probes_held", "probes_alive", "probes_gone", "full",
	"half_open_address_limit", "half_open_limit", "given_up", "established", "unsent_crowded",
	"unsent_no_way", "dropped_no_way", "lookups_cut", "dropped_source", "timewait_cut"}

// counts are written with the manager's lock.
type counts struct {
	own            [counters]uint64
	sent, received [mad.Kinds]uint64
	malformed      [mad.Reasons]uint64
}

func (c *counts) add(what counter) { c.own[what]++ }

// each calls f with each name and value, always in the same order.
func (c *counts) each(f func(name string, value uint64)) {
	for i := range mad.Kinds {
		name := (mad.REQ + mad.Kind(i)).String()
		f("cm_sent_"+name, c.sent[i])
		f("cm_received_"+name, c.received[i])
	}
	for why := mad.WellFormed + 1; why < mad.Reasons; why++ {
		f("cm_malformed_"+why.String(), c.malformed[why])
	}
	for i, name := range counterNames {
		f("cm_"+name, c.own[i])
	}
}

// wake is a descriptor that ends a poll: eventfd(2).
type wake struct{ fd int }

func newWake() (wake, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return wake{-1}, fmt.Errorf("make an event descriptor: %w", err)
	}
	return wake{fd}, nil
}

// signal fails only if it is signalled already.
func (w wake) signal() { _, _ = unix.Write(w.fd, []byte{1, 0, 0, 0, 0, 0, 0, 0}) }

func (w wake) take() { _, _ = unix.Read(w.fd, make([]byte, 8)) }

func (w wake) close() error { return unix.Close(w.fd) }
