package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/unifiedd/unifiedd/flows/client"
	"github.com/unifiedd/unifiedd/flows/journal"
	"github.com/unifiedd/unifiedd/selftests/harness"
)

// checkLog reads a log on disk from its beginning, and verifies the messages that append has sent:
// the order within each session, and every byte.
func checkLog(ctx context.Context, _ *client.Client, o options) (r result, err error) {
	l, err := journal.Open(o.file)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	from := l.Reader(0)
	defer func() { err = errors.Join(err, from.Close()) }()
	r = result{Did: "found in the log and verified"}
	next := make(map[uint64]uint64)
	for ctx.Err() == nil {
		m, err := from.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return r, err
		}
		if m.Control() {
			continue
		}
		next[m.Session]++
		if m.Sequence != next[m.Session] {
			return r, fmt.Errorf("position %d has message %d of its session, and message %d was to be there", m.Position, m.Sequence, next[m.Session])
		}
		if at := harness.Differs(m.Payload, o.seed, m.Sequence); at >= 0 {
			return r, fmt.Errorf("position %d, in %s at %d, differs from byte %d on", m.Position, m.Segment, m.Offset, at)
		}
		r.Messages, r.Bytes, r.Position = r.Messages+1, r.Bytes+uint64(len(m.Payload)), m.Position
	}
	r.Sessions = len(next)
	return r, o.enough(r.Messages)
}

// enough checks the number of messages found against -count, if it is set.
func (o *options) enough(found uint64) error {
	if o.count > 0 && found != o.count {
		return fmt.Errorf("%d were found, and %d were to be there", found, o.count)
	}
	return nil
}
