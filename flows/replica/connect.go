package replica

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/flows/stream"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/connect"
)

// Want is what a member wants from another: the records of an epoch's leader from a position on, or
// with Fetch, as the leader, the records that it lacks.
type Want struct {
	Group    string
	Self     uint32
	Member   uint32   // on the other side
	Name     string   // that its certificate must have, with TLS
	Path     int      // over which device; see Config.Others
	Address  string   // of its RDMA listener on that path
	others   []string // more addresses of it, for Driver.dial
	Epoch    uint64
	Next     uint64 // position
	Of       uint64 // epoch of the record before
	Fetch    bool
	Spread   bool              // see DriverConfig.Spread; the other member is told
	Fence    uint64            // see Links.Attach
	again    bool              // the records come over another link already
	Settings *connect.Settings // nil: chosen for the address
	Connect  connect.Config
}

// Dial connects to a member that has records. do runs a function on the worker's thread. The caller
// calls Finish when the link has ended, or when the connection has. It may be called from any
// goroutine.
func (l *Links) Dial(ctx context.Context, do stream.Doer, w Want) (k *Link, conn *connect.Conn, err error) {
	settings, err := l.settings(ctx, &w)
	if err != nil {
		return nil, nil, err
	}
	e, err := l.newEnd(w.Path, settings)
	if err != nil {
		return nil, nil, err
	}
	if err := do(func() (err error) {
		k, err = l.Attach(e.Queue, w.Path, w.Member, w.Epoch, false, w.again, w.Next, w.Of, 0, w.Fence)
		return err
	}); err != nil {
		return nil, nil, errors.Join(err, e.Queue.Close())
	}
	h := protocol.Hello{Role: protocol.RoleReplicate, Flow: w.Group, Message: l.config.Message, Window: 0, Session: w.Epoch, Next: w.Next, Participant: w.Self}
	if w.Fetch {
		h.Capabilities = protocol.CapabilityFetch
	}
	if w.Spread {
		h.Capabilities |= protocol.CapabilitySpread
	}
	var answer protocol.Hello
	if e.Hello, err = h.Append(nil); err == nil {
		if conn, err = connect.Dial(ctx, w.Address, e, w.Connect); err == nil {
			if answer, err = agree(conn, &w); err != nil {
				err = errors.Join(err, conn.Close())
			}
		}
	}
	if err != nil {
		return nil, nil, errors.Join(err, l.Finish(do, k, err))
	}
	return k, conn, l.connected(do, k, conn, &answer)
}

// connected says that both sides may send. h is the hello of the other one.
func (l *Links) connected(do stream.Doer, k *Link, conn *connect.Conn, h *protocol.Hello) error {
	err := do(func() error {
		k.connected, k.spread = true, h.Capabilities&protocol.CapabilitySpread != 0
		return nil
	})
	if err != nil {
		err = errors.Join(err, conn.Close(), l.Finish(do, k, err))
	}
	return err
}

// agree reads and checks the answer of the other member.
func agree(conn *connect.Conn, w *Want) (protocol.Hello, error) {
	h, err := protocol.ParseHello(conn.Remote().Hello)
	switch p := conn.Peer(); {
	case err != nil:
		return h, err
	case !p.Plain && p.Name != w.Name:
		return h, fmt.Errorf("member %d at %s has a certificate of %q, and the configuration says %q", w.Member, w.Address, p.Name, w.Name)
	case h.Role != protocol.RoleReplicate || h.Flow != w.Group || h.Participant != w.Member:
		return h, fmt.Errorf("member %d of flow %q answers as %v, and not member %d of flow %q", h.Participant, h.Flow, h.Role, w.Member, w.Group)
	case h.Session != w.Epoch || h.Next != w.Next:
		return h, fmt.Errorf("member %d answers for epoch %d and position %d, and not for %d and %d", w.Member, h.Session, h.Next, w.Epoch, w.Next)
	}
	return h, nil
}

// Answer connects a member that wants records from position h.Next on, over the path that it has chosen. The caller has checked that it
// may have them, and calls Finish as after Dial. spread is DriverConfig.Spread, and fence is for Attach.
func (l *Links) Answer(do stream.Doer, path int, q *connect.Request, h *protocol.Hello, self uint32, spread bool, fence uint64) (k *Link, conn *connect.Conn, err error) {
	to := netip.Addr{}
	if gid := q.Remote().Parameters.GID; !gid.IsZero() {
		to = gid.Addr()
	}
	settings, err := l.paths[path].endpoint.Settings(q.Local(), to)
	if err != nil {
		return nil, nil, err
	}
	e, err := l.newEnd(path, settings)
	if err != nil {
		return nil, nil, err
	}
	if err := do(func() (err error) {
		k, err = l.Attach(e.Queue, path, h.Participant, h.Session, true, false, h.Next, 0, uint64(h.Window), fence)
		return err
	}); err != nil {
		return nil, nil, errors.Join(err, e.Queue.Close())
	}
	answer := protocol.Hello{Role: protocol.RoleReplicate, Flow: h.Flow, Message: l.config.Message, Session: h.Session, Next: h.Next, Participant: self}
	if spread {
		answer.Capabilities = protocol.CapabilitySpread
	}
	if e.Hello, err = answer.Append(nil); err == nil {
		conn, err = q.Accept(e)
	}
	if err != nil {
		return nil, nil, errors.Join(err, l.Finish(do, k, err))
	}
	return k, conn, l.connected(do, k, conn, h)
}

// restTime is the time between Error and close of a queue pair. In this time the device completes the
// operations that it had begun.
const restTime = 10 * time.Millisecond

// Finish ends a link, if it has not ended, and closes its queue pair. Any goroutine may call it.
func (l *Links) Finish(do stream.Doer, k *Link, cause error) error {
	err := do(func() error { return l.End(k, cause) })
	time.Sleep(restTime)
	var closeQueue func() error
	err = errors.Join(err, do(func() (err error) { closeQueue, err = l.part(k); return err }))
	if closeQueue != nil {
		err = errors.Join(err, closeQueue()) // it may take long
	}
	if err := errors.Join(err, do(func() error { return l.Detach(k) })); err != nil {
		return fmt.Errorf("end the link of member %d in epoch %d: %w", k.member, k.epoch, err)
	}
	return nil
}

func (l *Links) settings(ctx context.Context, w *Want) (connect.Settings, error) {
	if w.Settings != nil {
		return *w.Settings, nil
	}
	return l.paths[w.Path].endpoint.SettingsTo(ctx, w.Address)
}

// newEnd makes a queue pair in INIT, at the device of a path.
func (l *Links) newEnd(path int, s connect.Settings) (e connect.End, err error) {
	p := l.paths[path]
	e.Settings = s
	if e.Queue, err = p.endpoint.Domain.NewQueuePair(p.queuePair()); err != nil {
		return e, err
	}
	if e.Parameters, err = connect.Prepare(p.endpoint.Device, e.Queue, s); err != nil {
		return e, errors.Join(err, e.Queue.Close())
	}
	return e, nil
}

// queuePair returns the configuration of a link's queue pair.
func (p *lane) queuePair() rdma.QueuePairConfig {
	return rdma.QueuePairConfig{Transport: rdma.RC, SendCQ: p.queues[0], ReceiveCQ: p.queues[1], Shared: p.shared, SendDepth: sendDepth, SendSGEs: 1, RecvSGEs: 1}
}

// dial connects to a member that has records, at the first of its addresses that answers.
func (d *Driver) dial(w Want) (k *Link, conn *connect.Conn, err error) {
	if w.Address == "" {
		return nil, nil, fmt.Errorf("where member %d is, is not known", w.Member)
	}
	for _, address := range append([]string{w.Address}, w.others...) {
		ctx, cancel := d.ctx, func() {}
		if len(w.others) > 0 || len(d.config.Links.paths) > 1 {
			ctx, cancel = context.WithTimeout(d.ctx, addressTime)
		}
		w.Address = address
		var e error
		k, conn, e = d.config.Links.Dial(ctx, d.config.Do, w)
		cancel()
		if e == nil {
			return k, conn, nil
		}
		err = errors.Join(err, e)
	}
	return nil, nil, err
}

// attend waits for the end of a link and closes it.
func (d *Driver) attend(ctx context.Context, k *Link, conn *connect.Conn) error {
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _ = conn.Receive() // nothing is said: it returns when the connection ends
	}()
	select {
	case <-gone:
	case <-k.Ended():
	case <-ctx.Done():
	}
	err := d.config.Links.Finish(d.config.Do, k, errClosed)
	_ = conn.Close() // the other side may have closed it
	<-gone
	d.log.Info("a link has ended", "member", k.member, "epoch", k.epoch, "err", k.Cause())
	return errors.Join(k.Cause(), err)
}

// Reconnect ends the connections for elections. Members dial again, and prove who they are by the
// credentials that are in use then.
func (d *Driver) Reconnect() { d.transport.Reconnect() }
