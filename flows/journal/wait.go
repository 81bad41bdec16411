package journal

import (
	"context"
	"io"
	"time"
)

// How often Wait looks for a record, and how often it finds out at length whether what is missing is lost.
const (
	eager, lazy     = time.Millisecond, 100 * time.Millisecond
	proving, seldom = time.Second, time.Minute
)

// Wait is Next, but waits for the record until the context ends, whose error it returns then.
func (r *Reader) Wait(ctx context.Context) (Record, error) {
	idle, every, since := eager, proving, time.Now()
	for {
		prove := time.Since(since) >= every
		if prove {
			every, since = min(2*every, seldom), time.Now()
		}
		rec, err := r.read(prove)
		if err != io.EOF {
			return rec, err
		}
		select {
		case <-ctx.Done():
			return Record{}, context.Cause(ctx)
		case <-time.After(idle):
		}
		idle = min(2*idle, lazy)
	}
}
