package stream

import (
	"context"
	"errors"

	"github.com/unifiedd/unifiedd/rdma/connect"
	"github.com/unifiedd/unifiedd/umem"
)

// A receiver at several devices has a Receiver for each: their ports, receives and credits are separate. They share the
// table of sessions and the queue for Recv. So a session that comes back at another device continues there with the
// message after the last one that any of them has accepted, and its messages stay in order.

// openOthers opens the receivers at the other devices. Their order is that of ReceiverConfig.Others.
func (r *Receiver) openOthers() error {
	for _, e := range r.config.Others {
		c := r.config
		c.Endpoint, c.Others, c.Name = e, nil, c.Name+" at "+e.Device.Name()
		o := &Receiver{config: c, sessions: r.sessions, ready: r.ready, device: 1 + len(r.others)}
		r.others = append(r.others, o)
		if err := o.open(); err != nil {
			return err
		}
	}
	return nil
}

// closeOthers closes the receivers at the other devices.
func (r *Receiver) closeOthers() error {
	var errs []error
	for _, o := range r.others {
		errs = append(errs, o.Close())
	}
	return errors.Join(errs...)
}

// all returns the receivers at all devices.
func (r *Receiver) all() []*Receiver { return append([]*Receiver{r}, r.others...) }

// roomy returns a receiver that has room for a frame of a message that is dropped. There always is one: a device posts
// receives only as long as those, and the messages for Recv, are not more than its depth.
func (r *Receiver) roomy() *Receiver {
	for _, o := range r.others {
		if o.posted+o.back.Len() < o.depth {
			return o
		}
	}
	return r
}

// share gives frames to the devices, so that all have about the same number of receives.
func (r *Receiver) share(empty []umem.Frame) (used int) {
	for used < len(empty) {
		least, n := r.poorest(len(empty) - used)
		n = least.supply(empty[used : used+n])
		if used += n; n == 0 {
			break
		}
	}
	return used
}

// poorest returns the device with the fewest receives, and its part of a number of frames.
func (r *Receiver) poorest(frames int) (least *Receiver, part int) {
	least, next := r, r.others[0].posted
	for _, o := range r.others {
		if o.posted < least.posted {
			least, next = o, least.posted
		} else {
			next = min(next, o.posted)
		}
	}
	if gap := next - least.posted; gap < frames {
		return least, gap + (frames-gap+len(r.others))/(1+len(r.others))
	}
	return least, frames
}

// ServeAll is Serve for a receiver with several devices: peers connect over each by its listener, in the order of the
// devices. It returns when all have ended.
func (r *Receiver) ServeAll(ctx context.Context, all []*connect.Listener, do Doer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, len(r.others))
	for i, o := range r.others {
		go func() {
			err := o.Serve(ctx, all[i+1], do)
			if err != nil {
				cancel() // without one device the flow ends, as it does with a single one
			}
			ended <- err
		}()
	}
	err := r.Serve(ctx, all[0], do)
	if err != nil {
		cancel()
	}
	for range r.others {
		err = errors.Join(err, <-ended)
	}
	return err
}

// StatsAt returns the counters of one device: 0 is the first one. Any goroutine may call it.
func (r *Receiver) StatsAt(device int) ReceiverStats {
	if device > 0 {
		return r.others[device-1].counts()
	}
	return r.counts()
}

// add adds the counters of another device.
func (s *ReceiverStats) add(o ReceiverStats) {
	s.Connected += o.Connected
	s.Failed += o.Failed
	s.Messages += o.Messages
	s.Bytes += o.Bytes
	s.Replays += o.Replays
	s.Early += o.Early
	s.Dropped += o.Dropped
	s.Progress += o.Progress
	s.Grants += o.Grants
	s.Posted += o.Posted
	for why, n := range o.Refused {
		s.Refused[why] += n
	}
}
