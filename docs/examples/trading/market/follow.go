package market

import (
	"context"
	"errors"
	"time"

	"github.com/unifiedd/unifiedd/flows/attached"
)

// Follow opens a channel to read, and waits until its writer is there.
func Follow(ctx context.Context, k *attached.Client, channel string) (*attached.ChannelReader, error) {
	for {
		r, err := k.ReadChannel(channel)
		var refused *attached.RefusedError
		if err == nil || !errors.As(err, &refused) || refused.Reason != "busy" {
			return r, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(time.Millisecond):
		}
	}
}

// Next waits for the next message of a channel. It is in buffer until the next call.
func Next(ctx context.Context, r *attached.ChannelReader, buffer []byte) ([]byte, error) {
	for {
		n, _, ok, err := r.Read(buffer)
		if ok {
			return buffer[:n], nil
		}
		if err != nil && !errors.Is(err, attached.ErrGone) {
			var refused *attached.RefusedError
			if !errors.As(err, &refused) {
				return nil, err
			}
		}
		if err := r.Wait(ctx, time.Second); err != nil {
			return nil, err
		}
	}
}
