package manager

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
)

// Manager is the connection manager of a device.
type Manager struct {
	device *roce.Device
	config Config
	start  time.Time
	wake   wake
	gsi    *gsiQP
	ended  chan struct{} // closed by the goroutine
	stop   atomic.Bool

	mu        sync.Mutex
	machine   *machine
	listeners []*listener
	held      int // routes, requests and connections that are not closed
	closed    bool
	failure   error // why the goroutine has ended, where it was not told to
	once      sync.Once
	err       error // of Close
}

var _ cm.Manager = (*Manager)(nil)

// Open opens the connection manager of a device, which has one at a time. The caller closes it, before the device.
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

// mtu is what the port carries.
func (m *Manager) mtu() rdma.MTU {
	p, err := m.device.Port(1)
	if err != nil {
		return 0
	}
	return p.ActiveMTU
}

// counters are read by the device.
func (m *Manager) counters() (all []roce.Counter) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.machine.counts.own[lookupsCut] = m.gsi.ways.cuts()
	m.machine.counts.each(func(name string, value uint64) { all = append(all, roce.Counter{Name: name, Value: value}) })
	return all
}

// do has the machine do something, and what comes of it.
func (m *Manager) do(f func(*machine)) {
	m.mu.Lock()
	m.machine.now = m.clock()
	f(m.machine)
	m.mu.Unlock()
	m.wake.signal()
}

// clock is the machine's.
func (m *Manager) clock() instant { return instant(time.Since(m.start)) }

// run takes messages and keeps deadlines until Close.
func (m *Manager) run() {
	defer close(m.ended)
	for !m.stop.Load() {
		if err := m.round(); err != nil {
			m.fail(err)
			return
		}
	}
}

// fail ends everything: the device is gone.
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
	leave(over)
	for _, l := range listeners {
		_ = l.Close()
	}
}

// round waits for something to do, and does it.
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

// came gives the machine a message.
func (m *Manager) came(w peerPath, b []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.machine.now = m.clock()
	m.machine.receive(w, b)
}

// serve does what is due, tells programs what happened, and sends messages. It returns when it wants to be called again.
func (m *Manager) serve() instant {
	m.mu.Lock()
	m.machine.now = m.clock()
	m.machine.tick()
	over := m.machine.over
	m.machine.over = nil
	m.mu.Unlock()
	leave(over)
	m.gsi.release(m)
	m.send()
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.machine.timers.first()
}

// leave leads the queue pairs of connections that are over to ERR, so that what is outstanding is flushed, and tells.
func leave(over []*connection) {
	for _, c := range over {
		if c.queue != nil {
			_ = c.queue.Modify(rdma.Attributes{State: rdma.Error}, rdma.MaskState) // unless it is closed
		}
		close(c.done)
	}
}

// send sends what there is room for; the rest goes when messages are complete.
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

// dropped counts a message that is lost.
func (m *Manager) dropped(why counter) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.machine.counts.add(why)
}

// sleep sleeps until then, or until something comes.
func (m *Manager) sleep(until instant) {
	poll := []unix.PollFd{{Fd: int32(m.wake.fd), Events: unix.POLLIN}, {Fd: int32(m.gsi.cq.FD()), Events: unix.POLLIN}}
	var limit *unix.Timespec
	if until != never {
		t := unix.NsecToTimespec(int64(max(0, until-m.clock())))
		limit = &t
	}
	_, _ = unix.Ppoll(poll, limit, nil) // EINTR is one more round
}

// Open is how many routes, listeners, requests and connections are not closed.
func (m *Manager) Open() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.held + len(m.listeners)
}

// farewell is how long peers are waited for that are told of an end.
const farewell = time.Second

// Close ends everything. Peers have a second to hear of it.
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
				x.hangUp(c, cm.ErrClosed)
				all = append(all, c)
			}
		}
	})
	m.settle(all)
	m.stop.Store(true)
	m.wake.signal()
	<-m.ended
	m.serve() // what was left
	m.device.Manage(nil)
	return errors.Join(m.gsi.close(), m.wake.close())
}

// shut lets nothing new begin, and returns who listens.
func (m *Manager) shut() []*listener {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	return slices.Clone(m.listeners)
}

// settle waits until peers have heard, for a second at most.
func (m *Manager) settle(all []*connection) {
	limit := time.NewTimer(farewell)
	defer limit.Stop()
	for _, c := range all {
		select {
		case <-c.settled:
		case <-m.ended:
			return
		case <-limit.C:
			return
		}
	}
}

// usable says why nothing can be begun. The caller has the lock.
func (m *Manager) usable() error {
	switch {
	case m.closed:
		return fmt.Errorf("the connection manager of %v is %w", m.device, cm.ErrClosed)
	case m.failure != nil:
		return fmt.Errorf("the connection manager of %v: %w: %w", m.device, cm.ErrDeviceGone, m.failure)
	}
	return nil
}
