// Package timed ends what waits on a connection when a context ends.
package timed

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

// Bind makes reads and writes of the connection fail once the context ends, until the returned
// function is called. That reports whether it came before the context's end.
func Bind(ctx context.Context, conn net.Conn) (release func() bool) {
	return context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
}

// Cause is the context's end where that is why something failed, and else the error.
func Cause(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	switch {
	case cause == nil:
		return err
	case errors.Is(cause, context.DeadlineExceeded):
		return fmt.Errorf("nothing came in time: %w", cause)
	}
	return cause
}
