package flows

import (
	"errors"
	"fmt"
	"time"

	"github.com/unifiedd/unifiedd/nvme"
	"github.com/unifiedd/unifiedd/xdp"
)

const (
	// glance is how often a flow looks whether it failed or is done.
	glance = 50 * time.Millisecond
	// patience is how long a flow that stops waits for the disk.
	patience = 30 * time.Second
)

// watch runs beside a flow until it is to stop, fails or is done, and then ends
// it.
func (f *Flow) watch(r *run, quit <-chan struct{}, ended chan<- struct{}) {
	defer close(ended)
	state, err := f.observe(r, quit)
	if r.failed.Load() == nil { // where only the interface failed, what came before is kept
		err = errors.Join(err, f.drain(r))
	}
	if err != nil {
		state = Failed
		r.note(err) // nothing more is taken; what is not written is lost
		f.giveUp(r)
		if r.disk != nil {
			err = r.disk.diagnose(err)
		}
	}
	f.end(r, state, err)
}

// giveUp stops a flow that failed, and waits a while for what the disk still has.
func (f *Flow) giveUp(r *run) {
	_ = r.net.Stop() // it may be why the flow failed
	deadline := time.Now().Add(5 * time.Second)
	for r.disk != nil && r.disk.queue.Stats().InFlight > 0 && time.Now().Before(deadline) {
		time.Sleep(glance)
	}
	time.Sleep(glance) // the worker reaps once more
}

// observe waits for the end of a flow and says which it is.
func (f *Flow) observe(r *run, quit <-chan struct{}) (State, error) {
	tick := time.NewTicker(glance)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-quit:
			return Stopped, nil
		case <-tick.C:
		}
		if err := r.failed.Load(); err != nil {
			return Failed, *err
		}
		if r.complete.Load() {
			return Done, nil
		}
		if n%int(time.Second/glance) != 0 {
			continue
		}
		if err := f.second(r); err != nil {
			return Failed, err
		}
	}
}

// second does what is done once a second. Its error ends the flow.
func (f *Flow) second(r *run) error {
	r.announceStatistics()
	f.mu.Lock()
	f.rate.update(time.Now(), r.packets.Load(), r.bytes.Load())
	f.mu.Unlock()
	err := r.net.Check()
	switch {
	case errors.Is(err, xdp.ErrInterfaceDown):
		f.await(err)
		return nil
	case err != nil:
		return err
	}
	why := r.disk.trouble()
	if why == nil && r.disk != nil {
		why = r.silence.look(time.Now(), f.to(), r.disk.queue.Stats())
	}
	if why != nil {
		f.await(why)
		return nil
	}
	f.setState(Running, nil)
	return nil
}

// await notes what the flow waits for.
func (f *Flow) await(why error) {
	f.mu.Lock()
	waiting := f.state == Waiting
	f.mu.Unlock()
	if !waiting {
		f.log.Warn("flow waits", "why", why)
	}
	f.setState(Waiting, why)
}

// drain lets no more packets in, and has everything received written and durable.
func (f *Flow) drain(r *run) error {
	if err := r.net.Stop(); err != nil && !errors.Is(err, xdp.ErrInterfaceGone) {
		return err
	}
	deadline := time.Now().Add(f.patience)
	if err := f.quiet(r, deadline); err != nil {
		return err
	}
	r.announceStatistics()
	return f.until(r, deadline, func(now time.Time) (bool, error) {
		if !r.lastNotes(now) {
			return false, nil
		}
		return r.sink.close(now)
	})
}

// quiet waits until no more packets come out of the rings: until a whole round of
// the worker, behind the one that may be under way, has brought none.
func (f *Flow) quiet(r *run, deadline time.Time) error {
	seen, since := r.packets.Load(), f.worker.rounds.Load()
	return f.until(r, deadline, func(time.Time) (bool, error) {
		round := f.worker.rounds.Load()
		if n := r.packets.Load(); n != seen || !r.idle() {
			seen, since = n, round
		}
		return round >= since+2, nil
	})
}

// until calls step on the worker's thread until it is done.
func (f *Flow) until(r *run, deadline time.Time, step func(now time.Time) (bool, error)) error {
	for {
		done := false
		err := f.worker.Do(func() (err error) { done, err = step(time.Now()); return err })
		if failed := r.failed.Load(); err == nil && failed != nil {
			err = *failed
		}
		if done || err != nil {
			return err
		}
		if time.Now().After(deadline) {
			written, durable := r.places.read()
			return errors.Join(r.disk.trouble(), fmt.Errorf("stop flow %s: %s did not take everything within %v: %d packets were received, %d are written, %d are durable",
				f.config.Name, f.to(), f.patience, r.packets.Load(), written.Packets, durable.Packets))
		}
		time.Sleep(time.Millisecond)
	}
}

// closeQueue closes a block queue on the worker's thread, a little at a time: the worker's
// other flows must not wait for a disk that hangs. The flow does, since the disk may still
// fetch the frames it has.
func (f *Flow) closeQueue(q *nvme.Queue) error {
	for begun, told := time.Now(), false; ; time.Sleep(glance) {
		err := f.worker.Do(func() error { return q.CloseWithin(time.Millisecond) })
		var stuck *nvme.StuckError
		if !errors.As(err, &stuck) {
			return err
		}
		if !told && time.Since(begun) > time.Second {
			f.await(err)
			told = true
		}
	}
}

// end releases a run and keeps its last status.
func (f *Flow) end(r *run, state State, err error) {
	last := f.observeStatus(r)
	if rerr := f.release(r); rerr != nil {
		err = errors.Join(err, rerr)
		state = Failed
	}
	last.abandon(r.lost())
	f.mu.Lock()
	defer f.mu.Unlock()
	f.run, f.last, f.state, f.err, f.since = nil, last, state, err, time.Now()
	if err != nil {
		f.log.Error("flow ended", "why", err)
	} else {
		f.log.Info("flow ended", "packets", last.Packets, "durable_packets", last.Durable.Packets)
	}
}

// rate is packets and bits per second over the last second.
type rate struct {
	at             time.Time
	packets, bytes uint64
	pps, bps       float64
}

func (r *rate) update(now time.Time, packets, bytes uint64) {
	if span := now.Sub(r.at).Seconds(); !r.at.IsZero() && span > 0 {
		r.pps = float64(packets-r.packets) / span
		r.bps = float64(bytes-r.bytes) * 8 / span
	}
	r.at, r.packets, r.bytes = now, packets, bytes
}
