package replica

import (
	"errors"
	"fmt"
	"sync"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/rdma/connect"
	"github.com/unifiedd/unifiedd/umem"
)

// Serve answers a member that wants records. open returns a reader of the log for records that the
// links do not hold any more. It returns when the link has ended.
func (d *Driver) Serve(path int, q *connect.Request, h *protocol.Hello, open func(from uint64) (Records, func() error, error)) error {
	admitted := make(chan error, 1)
	mine, fence := uint64(0), uint64(0)
	if d.call(func() {
		d.links.Add(1) // Close waits: the links must not be closed before
		d.served++
		mine = d.served
		var err error
		fence, err = d.admit(q.Peer(), h, mine)
		admitted <- err
	}) {
		defer d.links.Done()
	} else {
		admitted <- errClosed
	}
	if refused := <-admitted; refused != nil {
		d.refused.Add(1)
		return errors.Join(refused, q.Refuse(refused.Error()))
	}
	fetch := h.Capabilities&protocol.CapabilityFetch != 0
	if !fetch {
		defer d.call(func() {
			if d.newest[h.Participant] == mine { // else another link has taken its place
				d.member.Unlink(h.Participant, h.Session)
			}
		})
	}
	k, conn, err := d.config.Links.Answer(d.config.Do, path, q, h, d.config.Self, d.config.Spread, fence)
	if err != nil {
		d.refused.Add(1)
		_ = q.Refuse(err.Error()) // fails if it was answered
		return err
	}
	d.log.Info("a member gets records", "member", h.Participant, "epoch", h.Session, "from", h.Next, "fetch", fetch)
	var reading sync.WaitGroup
	if c := k.CatchUp(); c != nil {
		reading.Go(func() { d.catchUp(c, k, open) })
	}
	err = d.attend(d.ctx, k, conn)
	reading.Wait()
	return err
}

// admit checks a member that wants records. It returns the links' fence.
func (d *Driver) admit(from connect.Peer, h *protocol.Hello, serial uint64) (fence uint64, err error) {
	if want := (*d.peers.Load())[h.Participant].Name; !from.Plain && from.Name != want {
		return 0, fmt.Errorf("%w: member %d must have a certificate of %q, and this one is of %q", protocol.NotPermitted, h.Participant, want, from.Name)
	}
	if h.Flow != d.config.Group || h.Message != d.config.Links.config.Message {
		return 0, fmt.Errorf("%w: member %d is of group %q with records of %d bytes, and this one of %q with %d", protocol.NotPermitted, h.Participant, h.Flow, h.Message, d.config.Group, d.config.Links.config.Message)
	}
	fetch := h.Capabilities&protocol.CapabilityFetch != 0
	if !fetch {
		if err := d.member.Link(h.Participant, h.Session, h.Next-1); err != nil {
			return 0, fmt.Errorf("%w: %w", protocol.NotPermitted, err)
		}
		d.newest[h.Participant] = serial
	} else if h.Session != d.member.Epoch() || h.Participant != d.member.Leader() || h.Next > d.describe().End.Position+1 {
		return 0, fmt.Errorf("%w: member %d fetches records for epoch %d, and member %d leads epoch %d", protocol.NotPermitted, h.Participant, h.Session, d.member.Leader(), d.member.Epoch())
	}
	err = d.config.Do(func() error {
		fence = d.config.Links.Fence()
		if fetch {
			return nil
		}
		d.config.Replicator.Linked(h.Participant)
		return d.config.Links.EndOf(h.Participant)
	})
	return fence, err
}

// catchUp reads records from the segments for a link.
func (d *Driver) catchUp(c *CatchUp, k *Link, open func(from uint64) (Records, func() error, error)) {
	l := d.config.Links
	r, end, err := open(c.From())
	var left []umem.Frame
	if err == nil {
		left, err = c.Run(d.ctx, r, l.region, l.config.Landing)
		err = errors.Join(err, end())
	}
	if err != nil {
		d.call(func() { d.unreadable(k.epoch, err) })
	}
	_ = d.config.Do(func() error { // fails if the worker has ended: Close takes the frames
		l.Return(c, left)
		if err != nil {
			return l.End(k, fmt.Errorf("read records for member %d: %w", k.member, err))
		}
		return nil
	})
}
