package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/unifiedd/unifiedd/selftests/harness"
)

// history is a file with a line for each event, in the order of the events:
//
//	invoked NUMBER TIME
//	acknowledged NUMBER TIME POSITION
//
// An acknowledgement covers all messages up to its number. Times are harness.Monotonic. The line of an
// invocation is in the file before the message is sent, so the file of a killed program lacks none.
type history struct{ *os.File }

func (h history) invoked(number uint64) error {
	_, err := fmt.Fprintf(h, "invoked %d %d\n", number, harness.Monotonic())
	return err
}

func (h history) acknowledged(number uint64, at int64, position uint64) error {
	_, err := fmt.Fprintf(h, "acknowledged %d %d %d\n", number, at, position)
	return err
}

// recorded is all, and writes a history. Another goroutine waits for the acknowledgements, so that each
// has the time at which it arrived.
func (a *appending) recorded(ctx context.Context, path string) (r result, err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return r, fmt.Errorf("write a history: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	h := history{f}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	begin, flight, ended := time.Now(), make(chan struct{}, a.depth), make(chan error, 1)
	go func() {
		err := a.watch(ctx, h, flight)
		fail(err)
		ended <- err
	}()
	err = a.invoke(ctx, h, begin, flight)
	if err != nil {
		fail(err)
	}
	if err = errors.Join(err, <-ended); err != nil {
		return r, err
	}
	return a.result(begin), nil
}

// invoke sends all messages. flight has one element for each message that is not acknowledged.
func (a *appending) invoke(ctx context.Context, h history, begin time.Time, flight chan<- struct{}) error {
	message := make([]byte, a.size)
	for i := uint64(1); i <= a.count; i++ {
		if err := a.options.pace(ctx, begin, i); err != nil {
			return err
		}
		select {
		case flight <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		harness.Fill(message, a.seed, i)
		a.sent[i%uint64(a.depth)] = time.Now()
		if err := h.invoked(i); err != nil {
			return err
		}
		if _, err := a.to.Send(ctx, message); err != nil {
			return err
		}
	}
	return nil
}

// watch waits until all messages are acknowledged.
func (a *appending) watch(ctx context.Context, h history, flight <-chan struct{}) error {
	for a.done.Number < a.count {
		before := a.done.Number
		if err := a.await(ctx, before+1); err != nil {
			return err
		}
		if err := h.acknowledged(a.done.Number, harness.Monotonic(), a.done.Position); err != nil {
			return err
		}
		for range a.done.Number - before {
			<-flight
		}
	}
	return nil
}
