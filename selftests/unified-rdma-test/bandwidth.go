package main

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/measure"
)

// moderation is how many requests of a bandwidth test one completion stands for, at most.
const moderation = 100

// moderate is how many one stands for: a quarter of the depth, so that the others keep the device busy while the sender sleeps, and three if it does not sleep.
func (l *link) moderate() int {
	quarters := 1
	if l.op == rdma.Write && l.progress == nil {
		quarters = 3
	}
	return min(moderation, max(1, quarters*l.Depth/4))
}

// burst is how many requests are posted at once, at most.
const burst = 16

// bandwidth is the client's side: as many requests at a time as the depth allows.
func (l *link) bandwidth() (result, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	back, err := punctual()
	if err != nil {
		return result{}, err
	}
	defer back()
	every := l.moderate()
	posted, completed := measure.NewTicks(l.Count), measure.NewTicks(l.Count)
	next, done := 0, 0
	for done < l.Count {
		n := min(l.Depth-(next-done), l.Count-next, burst)
		if n > 0 {
			if err := l.postBurst(next, n, every, posted); err != nil {
				return result{}, err
			}
			next += n
		}
		var cs []rdma.WorkCompletion
		var err error
		if next-done == l.Depth || next == l.Count {
			cs, err = l.awaitRoom(l.sent)
		} else {
			cs, err = l.look()
		}
		if err != nil {
			return result{}, err
		}
		for i := range cs {
			done = int(cs[i].ID) + 1
			completed.At(done - 1)
		}
	}
	t := measure.Transfer{Bytes: l.Size, Unit: measure.MB, Posted: posted.Nanoseconds(), Completed: completed.Nanoseconds(), Moderation: every}
	row, err := t.Bandwidth()
	if err != nil {
		return result{}, err
	}
	return result{job: l.job, bandwidth: &row}, nil
}

// look takes completions without waiting.
func (l *link) look() ([]rdma.WorkCompletion, error) {
	n, err := l.sent.Poll(l.polled)
	if err != nil {
		return nil, err
	}
	return l.polled[:n], l.good(l.polled[:n])
}

// postBurst posts the requests from number next on; every so many, and the last, is signaled.
func (l *link) postBurst(next, n, every int, posted *measure.Ticks) error {
	for i := range n {
		number := next + i
		r, s := l.request(uint64(number), number%l.slots)
		if (number+1)%every == 0 || number == l.Count-1 {
			r.Flags |= rdma.Signaled
		}
		l.sends[i], l.sges[i] = r, s
		posted.Now()
	}
	if done, err := l.qp.PostSend(l.sends[:n], l.sges[:n]); done < n {
		return fmt.Errorf("post request %d: %w", next+done, err)
	}
	return nil
}

// answerBandwidth is the server's side: it posts receives again as messages come.
func (l *link) answerBandwidth() error {
	for got := 0; twoSided(l.op) && got < l.Count; {
		cs, err := l.awaitMany(l.came)
		if err != nil {
			if l.Transport != rdma.RC && got > 0 {
				err = errors.Join(fmt.Errorf("%d of %d messages came, the others were lost, which %v does not mend", got, l.Count, l.Transport), err)
			}
			return err
		}
		got += len(cs)
		if err := l.post(l.next(len(cs)), len(cs)); err != nil {
			return err
		}
	}
	return nil
}
