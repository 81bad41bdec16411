package pingpong

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"

	"github.com/unifiedd/unifiedd/rdma/connect"
	"github.com/unifiedd/unifiedd/rdma/connect/internal/timed"
)

// done is the client's last message.
var done = []byte("done\x00")

// Lead brings our queue pair to RTS: connect.Lead with the peer's parameters.
type Lead func(remote connect.Parameters) error

// Client exchanges destinations with a server over a connection, which the caller closes. Our queue
// pair must be in INIT before, with receives posted. Client calls lead when it knows the peer's
// destination. It returns early if ctx ends.
func Client(ctx context.Context, conn net.Conn, local connect.Parameters, lead Lead) (connect.Parameters, error) {
	defer timed.Bind(ctx, conn)()
	d := Of(local)
	if _, err := conn.Write(d.Encode()); err != nil {
		return connect.Parameters{}, failed(ctx, "send our address", err)
	}
	remote, err := read(conn, local)
	if err != nil {
		return remote, failed(ctx, "read the server's address", err)
	}
	if err := lead(remote); err != nil {
		return remote, err
	}
	if _, err := conn.Write(done); err != nil {
		return remote, failed(ctx, "say that it is done", err)
	}
	return remote, nil
}

// Server is the server's side of Client. It calls lead before it sends our destination, so that the
// client can send at once.
func Server(ctx context.Context, conn net.Conn, local connect.Parameters, lead Lead) (connect.Parameters, error) {
	defer timed.Bind(ctx, conn)()
	remote, err := read(conn, local)
	if err != nil {
		return remote, failed(ctx, "read the client's address", err)
	}
	if err := lead(remote); err != nil {
		return remote, err
	}
	d := Of(local)
	if _, err := conn.Write(d.Encode()); err != nil {
		return remote, failed(ctx, "send our address", err)
	}
	var b [5]byte
	if _, err := io.ReadFull(conn, b[:]); err != nil {
		return remote, failed(ctx, "wait for the client to be done", err)
	}
	if !bytes.Equal(b[:], done) {
		return remote, fmt.Errorf("pingpong: the client ends with %q and not %q", b[:], done)
	}
	return remote, nil
}

func read(conn net.Conn, local connect.Parameters) (connect.Parameters, error) {
	var b [Bytes]byte
	if _, err := io.ReadFull(conn, b[:]); err != nil {
		return connect.Parameters{}, err
	}
	d, err := Decode(b[:])
	if err != nil {
		return connect.Parameters{}, err
	}
	remote := d.Parameters(local.Transport, local.MTU)
	return remote, remote.Check()
}

// failed names a step. If the context has ended, that is the cause.
func failed(ctx context.Context, step string, err error) error {
	return fmt.Errorf("pingpong: %s: %w", step, timed.Cause(ctx, err))
}
