package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/unifiedd/unifiedd/flows/attached"
)

// record is the log of all orders.
type record struct {
	log  *attached.Sender
	done uint64
}

func openRecord(k *attached.Client) (*record, error) {
	s, err := k.Send("orders", 0)
	if err != nil {
		return nil, err
	}
	return &record{log: s}, nil
}

func (r *record) close() error { return r.log.Close() }

// append submits an order. It waits only if too many are not done.
func (r *record) append(ctx context.Context, order []byte) error {
	for {
		f, err := r.log.Claim()
		switch {
		case err == nil:
			_, err = r.log.Commit(f, copy(f.Data, order))
			return err
		case !errors.Is(err, attached.ErrFull):
			return err
		}
		if err := r.collect(ctx); err != nil {
			return err
		}
	}
}

// collect waits until some orders are durable.
func (r *record) collect(ctx context.Context) error {
	var receipts [64]attached.Receipt
	n, err := r.log.Poll(receipts[:])
	for _, one := range receipts[:n] {
		if one.Err != nil {
			return fmt.Errorf("record order %d: %w", one.Sequence, one.Err)
		}
	}
	r.done += uint64(n)
	if n == 0 || err != nil {
		return r.log.Wait(ctx, time.Second)
	}
	return nil
}

// finish waits until all orders are durable.
func (r *record) finish(ctx context.Context, all uint64) error {
	for r.done < all {
		if err := r.collect(ctx); err != nil {
			return fmt.Errorf("%d of %d orders are durable: %w", r.done, all, err)
		}
	}
	return nil
}
