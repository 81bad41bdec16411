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

// progressLoop is the goroutine that drives a device while no program does: deadlines, acknowledgements, packets for programs that wait for
// an event. While programs poll it does not watch the sockets, so that it is not woken by each packet, and looks
// only now and then whether they still do.
type progressLoop struct {
	dev    *Device
	mtu    rdma.MTU      // of the port when the device was opened
	up     bool          // the link works, as the program was told
	signal signal        // ends watch
	nudge  chan struct{} // ends rest
	timer  *time.Timer   // of rest
	poll   []unix.PollFd
	limit  unix.Timespec // of poll
	done   chan struct{} // closed when it has ended; nil: it never began

	until    transport.Time // when it looks by itself, under the device's lock; 0: soon
	stopping atomic.Bool
	napping  atomic.Bool
	wanted   atomic.Bool // a program goes to sleep, and wants it to watch
}

const (
	// sleepInterval is how long programs that drive the device are left alone.
	sleepInterval = 4 * time.Millisecond
	// yieldInterval is how long it is at most until packets that have left are noticed, of which the card says nothing.
	yieldInterval = time.Millisecond
	// pause is how long the card is left alone that has no room.
	pause = 50 * time.Microsecond

	// sockets is where those are among what it polls, behind the signal and the network's descriptor.
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
		seen := d.turns.Load()
		t.watch()
		for now := d.turns.Load(); now != seen && !t.wanted.Swap(false) && !d.awaited(); now = d.turns.Load() {
			seen = now
			t.rest()
			d.flushACKs()
		}
	}
}

// watch sleeps until packets come or there is something to do.
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

// commit says how long it may sleep, and has it woken where that changes.
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

// rest leaves the device to the programs for a while, unless one of them goes to sleep. It waits without a system call: one
// that blocks has the Go scheduler look after it every few microseconds, on a processor that a program spins on.
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

// wake ends rest.
func (t *progressLoop) wake() {
	select {
	case t.nudge <- struct{}{}:
	default: // it is about to end
	}
}

// want has it watch, for a program that goes to sleep.
func (t *progressLoop) want() {
	t.wanted.Store(true)
	if t.napping.Load() {
		t.wake()
	}
}

// rearm wakes it where it would sleep too long. The caller has the lock.
func (t *progressLoop) rearm(m *datapath) {
	if t.until == 0 {
		return
	}
	if at := m.deadline(); at < t.until {
		t.until = 0
		t.signal.signal()
	}
}

// deadline is when there is something to do without a packet that comes.
func (m *datapath) deadline() transport.Time {
	if m.owes || m.engine.Busy() || m.engine.HasDeferredACKs() {
		return 1
	}
	at := forever
	if m.underWay() { // nothing says when the card is done
		at = m.now().After(yieldInterval)
	}
	if due, ok := m.engine.NextDeadline(); ok {
		at = min(at, due)
	}
	return at
}

// close gives the descriptor back.
func (t *progressLoop) close() error { return t.signal.close() }

// work is what a thread that drives the device wants done.
type work uint8

const (
	polling work = iota // look what came
	posting             // send what was posted
	all                 // everything
)

// progress does the work, and that of others who came meanwhile. Who finds the device driven already leaves
// its work to the one who drives, and waits for nobody.
func (d *Device) progress(w work) {
	for {
		if !d.lock.TryLock() {
			d.missed.Store(true)
			if !d.lock.TryLock() {
				return // whoever has the lock looks at missed when it is free again
			}
		}
		if d.missed.Load() {
			d.missed.Store(false)
			w = all
		}
		d.do(w)
		d.lock.Unlock()
		if !d.missed.Load() {
			return
		}
	}
}

// post posts a request and sends it at once, where it is a plain message and nobody drives the device, and says whether it did. All else that
// is to be done follows.
func (d *Device) post(q *transport.QueuePair, r *rdma.SendRequest, sges []rdma.SGE) bool {
	if !d.lock.TryLock() {
		return false
	}
	defer d.unlock()
	ok := d.datapath.fastPost(q, r, sges)
	if ok {
		d.datapath.send()
		d.did(posting)
	}
	return ok
}

// idleTurns is how many polls in a row that find nothing to do are between two that do everything: deadlines, packets that have left.
// After so many idleRounds of them acknowledgements are not kept back any longer, which is some tens of microseconds.
const (
	idleTurns  = 512
	idleRounds = 8
)

// idles reports whether there is nothing to do, without the lock. It is asked by one who polls, with a count of its own of how often in
// a row that was so.
func (d *Device) idles(count *uint32) bool {
	if d.owes.Load() || d.came() {
		*count = 0
		return false
	}
	*count++
	return *count%idleTurns != 0
}

// came says whether packets have.
func (d *Device) came() bool {
	for _, p := range d.ports {
		if p.Ready() {
			return true
		}
	}
	return false
}

func (d *Device) do(w work) {
	m := &d.datapath
	if d.relieves.Load() {
		d.relieves.Store(false)
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
	d.did(w)
}

// did is what follows work.
func (d *Device) did(w work) {
	m := &d.datapath
	m.engine.Publish()
	if owes := m.owes || m.engine.Busy(); owes != d.owes.Load() {
		d.owes.Store(owes)
	}
	if w != all {
		release.Store64(&d.turns, d.turns.Load()+1)
	}
	d.progressLoop.rearm(m)
	if !m.engine.Quiet() {
		d.announce()
	}
}

// locked calls f with the lock, for which it waits, and then has done what others wanted meanwhile and what came of f.
func (d *Device) locked(f func()) {
	d.lock.Lock()
	f()
	d.lock.Unlock()
	d.progress(all)
}

// unlock gives back the lock of one who did nothing that has consequences, and does what others left to whoever has it.
func (d *Device) unlock() {
	d.lock.Unlock()
	if d.missed.Load() {
		d.progress(all)
	}
}

// flushACKs sends acknowledgements that were kept back when it was called before, also where a program polls too seldom to find out that nothing
// comes, or others keep it busy. Where somebody drives just now, whoever drives next does it: one who waited for the lock would have to be woken up.
func (d *Device) flushACKs() {
	if !d.lock.TryLock() {
		d.relieves.Store(true)
		return
	}
	defer d.unlock()
	d.relieves.Store(false)
	if d.datapath.engine.FlushACKs() {
		d.do(posting)
	}
}

// awaited says whether a program may sleep until a completion comes. It may have posted something since it armed a queue, so
// that the device has been driven meanwhile says nothing.
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

// announce tells the program of completions that it waits for, and of events.
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

// Progress has packets that came taken, and what is posted sent, unless another thread is doing that. See
// rdma.Progresser.
func (d *Device) Progress() {
	count := d.looks.Load()
	idle := d.idles(&count)
	release.Store32(&d.looks, count) // of several threads that look one may not be counted
	if !idle {
		d.progress(polling)
	}
}
