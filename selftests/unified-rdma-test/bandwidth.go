package main

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/unifiedd/unifiedd/rdma"
)

// moderation is the largest number of requests of a bandwidth test that one completion stands for.
const moderation = 100

// moderate returns how many requests one completion stands for. It is a quarter of the depth: the other
// requests keep the device busy while the sender sleeps. It is three quarters if the sender does not sleep.
func (l *link) moderate() int {
	quarters := 1
	if l.op == rdma.Write && l.progress == nil {
		quarters = 3
	}
	return min(moderation, max(1, quarters*l.Depth/4))
}

// burst is the largest number of requests that are posted at once.
const burst = 16

// bandwidth is the client's side. It keeps as many requests in flight as the depth allows.
func (l *link) bandwidth() (result, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	back, err := punctual()
	if err != nil {
		return result{}, err
	}
	defer back()
	every := l.moderate()
	posted, completed := newTicks(l.Count), newTicks(l.Count)
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
			completed.set(done - 1)
		}
	}
	row, err := bandwidthOf(l.Size, every, posted.at, completed.at)
	if err != nil {
		return result{}, err
	}
	return result{job: l.job, bandwidth: &row}, nil
}

// look polls for completions without waiting.
func (l *link) look() ([]rdma.WorkCompletion, error) {
	n, err := l.sent.Poll(l.polled)
	if err != nil {
		return nil, err
	}
	return l.polled[:n], l.good(l.polled[:n])
}

// postBurst posts requests, the first of which has number next. Every every-th request and the last
// one are signaled.
func (l *link) postBurst(next, n, every int, posted *ticks) error {
	for i := range n {
		number := next + i
		r, s := l.request(uint64(number), number%l.slots)
		if (number+1)%every == 0 || number == l.Count-1 {
			r.Flags |= rdma.Signaled
		}
		l.sends[i], l.sges[i] = r, s
		posted.now()
	}
	if done, err := l.qp.PostSend(l.sends[:n], l.sges[:n]); done < n {
		return fmt.Errorf("post request %d: %w", next+done, err)
	}
	return nil
}

// answerBandwidth is the server's side. It reposts receives as messages arrive.
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
