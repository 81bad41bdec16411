package flows

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/unifiedd/unifiedd/flows/pipeline"
	"github.com/unifiedd/unifiedd/flows/replica"
	"github.com/unifiedd/unifiedd/flows/sink/peers"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/nvme"
)

const (
	// pollInterval is the time between two looks at a flow that ends, and before the first check of one that begins.
	pollInterval = 50 * time.Millisecond
	// drainTimeout is how long a flow that stops waits for the disk.
	drainTimeout = 30 * time.Second
)

// watch runs on its own goroutine until the flow is to stop, fails or is done, and then ends the flow.
func (f *Flow) watch(r *pipeline.Run, o *outset, quit <-chan struct{}, ended chan<- struct{}) {
	defer close(ended)
	state, err := f.observe(r, o, quit)
	err = errors.Join(err, f.joined.Close())
	if cut, is := errors.AsType[*replica.CutError](err); is {
		f.deposed.Cut.Add(cut.Records)
		f.log.Info("the log is cut, and the flow begins again", "after", cut.After, "records", cut.Records)
		defer f.startAgain(nil, cut.After+1)
		state, err = status.Stopped, nil
	}
	if r.Err.Get() == nil { // if only the interface failed, what was received is kept
		err = errors.Join(err, f.drain(r))
	}
	if err != nil {
		state = status.Failed
		r.Err.Note(err) // nothing more is received; what is not written is lost
		f.giveUp(r)
		err = r.Flow.Diagnose(err)
	}
	f.end(r, state, err)
	o.over(err)
	f.afterEnd()
}

// giveUp stops a flow that failed, and waits up to 5 s for what the disk has in flight.
func (f *Flow) giveUp(r *pipeline.Run) {
	_ = r.Flow.StopReceiving() // its error may be why the flow failed
	deadline := time.Now().Add(5 * time.Second)
	for r.Flow.Pending() > 0 && time.Now().Before(deadline) {
		time.Sleep(pollInterval)
	}
	time.Sleep(pollInterval) // the worker reaps once more
}

// observe waits for the end of a flow and returns its state. It learns of an error and of the end from Err, and
// wakes up once a second together with all other flows.
func (f *Flow) observe(r *pipeline.Run, o *outset, quit <-chan struct{}) (status.State, error) {
	f.seconds.flows.Add(1)
	defer f.seconds.flows.Add(-1)
	first := time.NewTimer(pollInterval)
	defer first.Stop()
	for checked := time.Now(); ; {
		due := false
		select {
		case <-quit:
			return status.Stopped, nil
		case <-r.Err.News():
		case <-first.C:
			due = true
		case <-f.seconds.next():
			due = time.Since(checked) > time.Second/2 // else it has just begun
		}
		if err := r.Err.Get(); err != nil {
			return status.Failed, err
		}
		if r.Flow.Done() {
			return status.Done, nil
		}
		if !due {
			continue
		}
		checked = time.Now()
		if err := f.second(r); err != nil {
			return status.Failed, err
		}
		o.checked()
	}
}

// second is called once a second. Its error ends the flow.
func (f *Flow) second(r *pipeline.Run) error {
	now := time.Now()
	packets, bytes := r.Flow.Traffic()
	f.mu.Lock()
	f.rate.update(now, packets, bytes)
	f.mu.Unlock()
	f.noteLosses(r)
	waits, err := r.Flow.Check(now)
	if gone := f.joined.Check(); waits == nil {
		waits = gone
	}
	switch {
	case err != nil:
		return err
	case waits != nil:
		f.await(waits)
	default:
		f.setState(status.Running, nil)
	}
	return nil
}

// await publishes what the flow waits for. For a missing peer the sender has logged a warning
// already.
func (f *Flow) await(why error) {
	f.mu.Lock()
	waiting := f.state == status.Waiting
	f.mu.Unlock()
	level := slog.LevelWarn
	if _, ok := errors.AsType[*peers.PeerError](why); ok {
		level = slog.LevelInfo
	}
	if !waiting {
		f.log.Log(context.Background(), level, "flow waits", "err", why)
	}
	f.setState(status.Waiting, why)
}

// drain stops receiving, and finishes processing everything received. It calls the flow on the worker's
// thread until that is done.
func (f *Flow) drain(r *pipeline.Run) error {
	if err := r.Flow.StopReceiving(); err != nil {
		return err
	}
	told := false
	for begun, deadline := time.Now(), time.Now().Add(f.drainTimeout); ; time.Sleep(time.Millisecond) {
		if !told && time.Since(begun) > time.Second {
			if why := r.Flow.Trouble(); why != nil {
				f.await(why)
				told = true
			}
		}
		done := false
		err := f.worker.Do(func() (err error) { done, err = r.Flow.Drain(time.Now(), f.worker.Rounds()); return err })
		if err == nil {
			err = r.Err.Get()
		}
		if done || err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return f.late(r)
		}
	}
}

// late is the error of a flow that could not drain in time.
func (f *Flow) late(r *pipeline.Run) error {
	s := f.observeStatus(r)
	return errors.Join(r.Flow.Trouble(), fmt.Errorf("stop flow %s: %s did not take everything within %v: %d packets were received, %d are written, %d are durable",
		f.config.Name, s.To, f.drainTimeout, s.Packets, s.Written.Packets, s.Durable.Packets))
}

// closeQueue closes what belongs to the worker's thread. Each call takes only a moment, since other flows of
// the worker must not wait for a disk that hangs. This flow must wait: the disk may still read its frames.
func (f *Flow) closeQueue(r *pipeline.Run) error {
	for begun, told := time.Now(), false; ; time.Sleep(pollInterval) {
		err := f.worker.Do(r.Flow.CloseQueue)
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

// end closes a run and keeps its last status.
func (f *Flow) end(r *pipeline.Run, state status.State, err error) {
	last := f.observeStatus(r)
	if rerr := f.release(r); rerr != nil {
		err = errors.Join(err, rerr)
		state = status.Failed
	}
	r.Flow.CountLost(&last)
	for range 2 { // the second time what has not been recorded because it went on
		f.countLosses(&last)
	}
	f.noteState(state, err)
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.ran) > steadyAfter {
		f.wait = 0
	}
	f.run, f.last, f.state, f.err, f.since = nil, last, state, err, time.Now()
	if err != nil {
		f.log.Error("flow ended", "err", err, "dropped", droppedOf(&last))
	} else {
		f.log.Info("flow ended", "packets", last.Packets, "durable_packets", last.Durable.Packets, "dropped", droppedOf(&last))
	}
}

// droppedOf returns how many packets or messages a flow has dropped, for whatever reason.
func droppedOf(s *status.Flow) (all uint64) {
	for _, n := range s.Dropped {
		all += n
	}
	return all
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
