package cm

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/unifiedd/unifiedd/rdma"
)

// Request is a peer that wants to connect. It must be answered, by Accept, Reject or Close.
type Request struct {
	identifier *identifier
	said       said
	place      Place
}

// Private is what the peer's program says: anything at all, with zeros behind it (see the package). It is
// the caller's.
func (r *Request) Private() []byte { return r.said.private }

// Place says where it came in, and with which device the queue pair for it must be made.
func (r *Request) Place() Place { return r.place }

// Reads is how many READs and atomics of ours the peer allows to be outstanding, and how many of its own it
// wants.
func (r *Request) Reads() (ours, theirs uint8) { return r.said.reads, r.said.remoteReads }

// Prepare leads a queue pair from RESET to INIT, where receives can be posted. The peer may do
// through it what access says.
func (r *Request) Prepare(q rdma.QueuePair, access rdma.Access) error {
	return r.identifier.prepare(q, access)
}

// Accept connects a queue pair in INIT with the peer's, and leads it to RTS. It returns when the
// peer is ready. When it fails the queue pair may be in any state, and is good only for Close or RESET, and the
// request is over.
func (r *Request) Accept(ctx context.Context, e End) (*Conn, error) {
	step := fmt.Sprintf("accept %v through rdma_cm", r.place.Remote)
	err := r.accept(ctx, step, e)
	if err == nil {
		var conn *Conn
		if conn, err = newConn(r.identifier, r.place, e.Queue, r.said.private); err == nil {
			return conn, nil
		}
	}
	return nil, errors.Join(err, r.Close())
}

func (r *Request) accept(ctx context.Context, step string, e End) error {
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

// Reject refuses, and tells the peer's program why, in at most MostToReject bytes.
func (r *Request) Reject(why []byte) error {
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

// Peer is the address of who asks.
func (r *Request) Peer() netip.AddrPort { return r.place.Remote }

// Close refuses without a word, unless the request is answered. A Conn that was accepted stays.
func (r *Request) Close() error {
	if r.identifier.isLed() {
		return nil
	}
	return r.identifier.close()
}
