package roce

import (
	"math"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/release"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/roce/transport"
)

// progressLoop is the goroutine that drives a device while no program does: it handles deadlines,
// sends ACKs, and receives packets for programs that sleep until an event. While programs poll the
// device, it does not watch the sockets, so that packets do not wake it. It then only checks from
// time to time whether the programs still poll.
type progressLoop struct {
	dev    *Device
	mtu    rdma.MTU      // of the port when the device was opened
	up     bool          // the link state that the program was told
	signal signal        // wakes it from watch
	nudge  chan struct{} // wakes it from rest
	timer  *time.Timer   // of rest
	poll   []unix.PollFd
	limit  unix.Timespec // of poll
	done   chan struct{} // closed when it has ended; nil: it was never started

	until    transport.Time // when watch wakes up by itself, under the device's lock; 0: it is awake
	stopping atomic.Bool
	napping  atomic.Bool
	wanted   atomic.Bool // a program is about to sleep, so it must watch the sockets
}

const (
	// sleepInterval is how long it sleeps while programs drive the device.
	sleepInterval = 4 * time.Millisecond
	// yieldInterval is the longest time until sent packets are reaped. The card gives no notice of them.
	yieldInterval = time.Millisecond
	// pause is how long to wait before a retry when the send ring is full.
	pause = 50 * time.Microsecond

	// sockets is the index of the first socket in poll, after the signal and the network's descriptor.
	sockets = 2

	forever transport.Time = math.MaxInt64
)

// begin starts the goroutine, which stop ends.
func (t *progressLoop) begin(d *Device) {
	t.dev, t.done, t.nudge, t.up = d, make(chan struct{}), make(chan struct{}, 1), d.net.Up()
	t.poll = []unix.PollFd{{Fd: int32(t.signal.fd), Events: unix.POLLIN}, {Fd: int32(d.net.FD()), Events: unix.POLLIN}}
	for _, q := range d.datapath.queues {
		t.poll = append(t.poll, unix.PollFd{Fd: int32(q.port.FD()), Events: unix.POLLIN})
	}
	t.timer = time.NewTimer(sleepInterval)
	go t.run()
}

func (t *progressLoop) stop() {
	if t.done != nil {
		t.stopping.Store(true)
		t.signal.signal()
		t.wake()
		<-t.done
	}
}

func (t *progressLoop) run() {
	defer close(t.done)
	defer t.timer.Stop()
	d := t.dev
	for !t.stopping.Load() {
		d.progress(all)
		seen := d.drives.Load()
		t.watch()
		for now := d.drives.Load(); now != seen && !t.wanted.Swap(false) && !d.awaited(); now = d.drives.Load() {
			seen = now
			t.rest()
			d.flushACKs()
		}
	}
}

// watch sleeps until a packet arrives or a deadline passes.
func (t *progressLoop) watch() {
	var timeout *unix.Timespec
	if limit := t.commit(); limit >= 0 {
		t.limit = unix.NsecToTimespec(int64(limit))
		timeout = &t.limit
	}
	n, err := unix.Ppoll(t.poll, timeout, nil)
	t.dev.lock.Lock()
	t.until = 0
	t.dev.unlock()
	if n <= 0 || err != nil {
		return
	}
	if t.poll[0].Revents != 0 {
		_, _ = t.signal.taken()
	}
	if t.poll[1].Revents != 0 {
		t.dev.follow()
	}
}

// commit returns how long watch may sleep, and records it in until, so that rearm can wake it when
// an earlier deadline appears.
func (t *progressLoop) commit() time.Duration {
	d := t.dev
	d.lock.Lock()
	defer d.unlock()
	t.until = d.datapath.deadline()
	switch m := &d.datapath; {
	case t.until == forever:
		return -1
	case m.engine.Busy() && m.room() == 0:
		return pause
	default:
		return max(0, time.Duration(t.until-m.now()))
	}
}

// rest leaves the device to the programs for sleepInterval, unless one of them goes to sleep. It
// waits on a channel and not in a system call: the Go scheduler checks on a blocked system call
// every few microseconds, and would do so on a processor that a program spins on.
func (t *progressLoop) rest() {
	t.napping.Store(true)
	if !t.wanted.Load() && !t.stopping.Load() {
		t.timer.Reset(sleepInterval)
		select {
		case <-t.nudge:
			t.timer.Stop()
		case <-t.timer.C:
		}
	}
	t.napping.Store(false)
	t.dev.follow()
}

// wake wakes it from rest.
func (t *progressLoop) wake() {
	select {
	case t.nudge <- struct{}{}:
	default: // it wakes up anyway
	}
}

// want makes it watch the sockets, because a program is about to sleep.
func (t *progressLoop) want() {
	t.wanted.Store(true)
	if t.napping.Load() {
		t.wake()
	}
}

// rearm wakes it if it would sleep past the next deadline. The caller holds the lock.
func (t *progressLoop) rearm(m *datapath) {
	if t.until == 0 {
		return
	}
	if at := m.deadline(); at < t.until {
		t.until = 0
		t.signal.signal()
	}
}

// deadline returns when there is work even if no packet arrives.
func (m *datapath) deadline() transport.Time {
	if m.txPending || m.engine.Busy() || m.engine.HasDeferredACKs() {
		return 1
	}
	at := forever
	if m.unreaped() { // the card does not report when it is done
		at = m.now().After(yieldInterval)
	}
	if due, ok := m.engine.NextDeadline(); ok {
		at = min(at, due)
	}
	return at
}

// close closes the descriptor.
func (t *progressLoop) close() error { return t.signal.close() }

// work says which part of the device's work a thread wants done.
type work uint8

const (
	polling work = iota // receive
	posting             // send posted requests
	all                 // everything
)

// progress does the work, and the work that other threads leave in the meantime. A thread that
// finds the lock taken leaves its work to the holder of the lock, and does not wait.
func (d *Device) progress(w work) {
	for {
		if !d.lock.TryLock() {
			d.contended.Store(true)
			if !d.lock.TryLock() {
				return // the holder of the lock checks contended after it unlocks
			}
		}
		if d.contended.Load() {
			d.contended.Store(false)
			w = all
		}
		d.do(w)
		d.lock.Unlock()
		if !d.contended.Load() {
			return
		}
	}
}

// post posts a request and sends it at once, if it is a message of one packet and no other thread
// drives the device. It reports whether it did.
func (d *Device) post(q *transport.QueuePair, r *rdma.SendRequest, sges []rdma.SGE) bool {
	if !d.lock.TryLock() {
		return false
	}
	defer d.unlock()
	ok := d.datapath.fastPost(q, r, sges)
	if ok {
		d.datapath.send()
		d.publish(posting)
	}
	return ok
}

// idlePolls is the number of empty polls in a row between two full rounds, which check deadlines and reap sent packets.
// After idleRounds rounds, some tens of microseconds, ACKs are not delayed any longer.
const (
	idlePolls  = 512
	idleRounds = 8
)

// idle reports whether there is nothing to do. It does not take the lock. count belongs to the
// thread that polls: the number of consecutive calls that found nothing.
func (d *Device) idle(count *uint32) bool {
	if d.txPending.Load() || d.hasPackets() {
		*count = 0
		return false
	}
	*count++
	return *count%idlePolls != 0
}

// hasPackets reports whether packets have arrived.
func (d *Device) hasPackets() bool {
	for _, p := range d.ports {
		if p.Ready() {
			return true
		}
	}
	return false
}

func (d *Device) do(w work) {
	m := &d.datapath
	if d.ackFlushRequested.Load() {
		d.ackFlushRequested.Store(false)
		m.engine.FlushACKs()
	}
	switch w {
	case polling:
		m.poll()
	case posting:
		m.send()
	case all:
		m.round()
	}
	d.publish(w)
}

// publish publishes the results of work: counters, events, completions that a program sleeps for, the
// next deadline.
func (d *Device) publish(w work) {
	m := &d.datapath
	m.engine.Publish()
	if pending := m.txPending || m.engine.Busy(); pending != d.txPending.Load() {
		d.txPending.Store(pending)
	}
	if w != all {
		release.Store64(&d.drives, d.drives.Load()+1)
	}
	d.progressLoop.rearm(m)
	if !m.engine.Quiet() {
		d.announce()
	}
}

// locked waits for the lock and calls f with it. It then does the work that f and other threads
// have left.
func (d *Device) locked(f func()) {
	d.lock.Lock()
	f()
	d.lock.Unlock()
	d.progress(all)
}

// unlock releases the lock when the holder has left no work, and does the work that other threads
// have left in the meantime.
func (d *Device) unlock() {
	d.lock.Unlock()
	if d.contended.Load() {
		d.progress(all)
	}
}

// flushACKs sends the ACKs that were already delayed when it was last called. So an ACK is sent in
// time even if a program polls too seldom, or never finds its rings empty. If another thread has
// the lock, the next thread that drives the device sends them: waiting for the lock would cost a
// wake-up.
func (d *Device) flushACKs() {
	if !d.lock.TryLock() {
		d.ackFlushRequested.Store(true)
		return
	}
	defer d.unlock()
	d.ackFlushRequested.Store(false)
	if d.datapath.engine.FlushACKs() {
		d.do(posting)
	}
}

// awaited reports whether a program may sleep until a completion arrives. It checks the armed
// queues and not drives: the program may have posted something after it armed a queue, which counts
// as a turn.
func (d *Device) awaited() bool {
	if d.eventful.Load() == 0 {
		return false
	}
	d.lock.Lock()
	defer d.unlock()
	for c := range d.waiting {
		if c.Armed() {
			return true
		}
	}
	return false
}

// announce wakes programs that wait for completions, and passes on events.
func (d *Device) announce() {
	m := &d.datapath
	var wakes [8]*transport.CompletionQueue
	for n := m.engine.Wakes(wakes[:]); n > 0; n = m.engine.Wakes(wakes[:]) {
		for _, c := range wakes[:n] {
			if q := d.waiting[c]; q != nil {
				q.event.signal()
			}
		}
	}
	var events [8]rdma.Event
	for n := m.engine.Events(events[:]); n > 0; n = m.engine.Events(events[:]) {
		d.events.add(events[:n]...)
	}
}

// Progress receives packets and sends what is posted, unless another thread is doing so. See
// rdma.Progresser.
func (d *Device) Progress() {
	count := d.emptyPolls.Load()
	idle := d.idle(&count)
	release.Store32(&d.emptyPolls, count) // a lost update from another thread does no harm
	if !idle {
		d.progress(polling)
	}
}
