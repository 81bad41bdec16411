package roce

import (
	"github.com/unifiedd/unifiedd/internal/release"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/roce/transport"
)

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
