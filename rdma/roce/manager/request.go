package manager

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/cm"
)

// request is a peer that wants to connect.
type request struct {
	manager *Manager
	c       *connection
	once    sync.Once // of its end, or its becoming a connection
}

func (r *request) Private() []byte           { return r.c.peerState.private }
func (r *request) Address() cm.DeviceAddress { return r.c.place }
func (r *request) Peer() netip.AddrPort      { return r.c.place.Remote }

func (r *request) Reads() (ours, theirs uint8) { return r.c.peerState.reads, r.c.peerState.remoteReads }

func (r *request) Prepare(q rdma.QueuePair, access rdma.Access) error { return prepare(q, access) }

// Accept leads the queue pair, tells the peer, and waits until that is ready.
func (r *request) Accept(ctx context.Context, e cm.End) (cm.Conn, error) {
	step := fmt.Sprintf("accept %v through %v", r.c.place.Remote, r.manager.device)
	if err := r.accept(ctx, step, e); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	r.once.Do(func() {})
	return &conn{manager: r.manager, c: r.c}, nil
}

func (r *request) accept(ctx context.Context, step string, e cm.End) error {
	e.Reads, e.RemoteReads = min(e.Reads, r.c.peerState.reads), min(e.RemoteReads, r.c.peerState.remoteReads)
	if err := errors.Join(e.Check(), most(e.Private, cm.MostToAccept)); err != nil {
		return fmt.Errorf("%s: %w", step, err)
	}
	ours := endpoint{e.Queue.QPN(), uint32(random()) & psnMask}
	if err := leadUp(r.c, &e, ours); err != nil {
		return fmt.Errorf("%s: %w", step, err)
	}
	ok := false
	r.manager.do(func(x *machine) { ok = x.accept(r.c, &e, ours) })
	if !ok {
		return fmt.Errorf("%s: %w", step, r.manager.why(r.c))
	}
	_, err := r.manager.await(ctx, r.c, step, cm.Established)
	return err
}

// Reject refuses with a reason of the program's.
func (r *request) Reject(why []byte) error {
	err := most(why, cm.MostToReject)
	if err != nil {
		err = fmt.Errorf("reject %v through %v: %w", r.c.place.Remote, r.manager.device, err)
	} else {
		r.manager.do(func(x *machine) { x.turnDown(r.c, why) })
	}
	return errors.Join(err, r.Close())
}

// Close refuses, unless the request is answered.
func (r *request) Close() error {
	r.once.Do(func() { r.manager.end(r.c) })
	return nil
}
