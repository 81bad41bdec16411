package cm

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/unifiedd/unifiedd/rdma"
)

// request implements Request.
type request struct {
	identifier *identifier
	said       said
	place      DeviceAddress
}

func (r *request) Private() []byte { return r.said.private }

func (r *request) Address() DeviceAddress { return r.place }

func (r *request) Reads() (ours, theirs uint8) { return r.said.reads, r.said.remoteReads }

func (r *request) Prepare(q rdma.QueuePair, access rdma.Access) error {
	return r.identifier.prepare(q, access)
}

func (r *request) Accept(ctx context.Context, e End) (Conn, error) {
	step := fmt.Sprintf("accept %v through rdma_cm", r.place.Remote)
	err := r.accept(ctx, step, e)
	if err == nil {
		var conn Conn
		if conn, err = newConn(r.identifier, r.place, e.Queue, r.said.private); err == nil {
			return conn, nil
		}
	}
	return nil, errors.Join(err, r.Close())
}

func (r *request) accept(ctx context.Context, step string, e End) error {
	e.Reads, e.RemoteReads = min(e.Reads, r.said.reads), min(e.RemoteReads, r.said.remoteReads)
	p, err := e.parameters()
	if err == nil {
		err = r.identifier.lead(&e, r.said)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", step, err)
	}
	i := r.identifier
	command := accept{uid: i.uid, id: i.id, parameters: p}
	if err := i.channel.do(func(fd int) error { return order(fd, cmdAccept, &command) }); err != nil {
		return refusal(step, err)
	}
	_, err = i.wait(ctx, step, Established)
	return err
}

func (r *request) Reject(why []byte) error {
	command := reject{id: r.identifier.id}
	var err error
	if command.length, err = private(&command.private, why); err == nil {
		err = r.identifier.channel.do(func(fd int) error { return order(fd, cmdReject, &command) })
	}
	if err != nil {
		err = refusal(fmt.Sprintf("reject %v through rdma_cm", r.place.Remote), err)
	}
	return errors.Join(err, r.Close())
}

func (r *request) Peer() netip.AddrPort { return r.place.Remote }

func (r *request) Close() error {
	if r.identifier.isLed() {
		return nil
	}
	return r.identifier.close()
}
