// Package timed ends blocked reads and writes of a connection when a context ends.
package timed

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

// Bind makes reads and writes of the connection fail once the context ends, until the returned
// function is called. That function reports whether it was called before the context ended.
func Bind(ctx context.Context, conn net.Conn) (release func() bool) {
	return context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
}

// Cause returns the error of a failed step: the cause of the context's end if it has ended,
// otherwise err.
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
