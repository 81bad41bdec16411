// Command orders reads orders from a channel and appends each to a log. An order is done when it is durable.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/unifiedd/unifiedd/docs/examples/trading/market"
	"github.com/unifiedd/unifiedd/flows/attached"
)

func main() {
	socket := flag.String("socket", attached.DefaultSocket, "`path` of the socket where programs attach")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *socket); err != nil {
		log.Fatal("orders: ", err)
	}
}

// entry appends orders to the log.
type entry struct {
	log  *attached.Sender
	done uint64
}

func run(ctx context.Context, socket string) (err error) {
	k, err := attached.Attach(attached.Config{Socket: socket, Name: "orders"})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, k.Close()) }()
	e := &entry{}
	if e.log, err = k.Send("orders", 0); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.log.Close()) }()
	orders, err := market.Follow(ctx, k, "orders")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, orders.Close()) }()

	var o market.Order
	hop, all := market.Times{Hop: "strategy to order entry"}, market.Times{Hop: "exchange to order entry"}
	got, buffer := uint64(0), make([]byte, orders.Longest())
	for {
		b, err := market.Next(ctx, orders, buffer)
		if ctx.Err() != nil {
			break
		}
		if err == nil {
			err = o.Parse(b)
		}
		if err != nil {
			return err
		}
		now := time.Now().UnixNano()
		hop.Add(now - o.Decided)
		all.Add(now - o.Sent)
		got++
		if o.Number != got+orders.Lost() {
			return fmt.Errorf("order %d has come, and %d was to come", o.Number, got+orders.Lost())
		}
		if err := e.append(ctx, b); err != nil {
			return err
		}
	}
	if err := e.finish(got); err != nil {
		return err
	}
	r := market.Report{Program: "orders", Counts: map[string]uint64{"orders": got, "durable": e.done, "lost": orders.Lost()}}
	return r.Print(os.Stdout, &hop, &all)
}

// append submits an order. It waits only if too many are not done.
func (e *entry) append(ctx context.Context, order []byte) error {
	for {
		f, err := e.log.Claim()
		switch {
		case err == nil:
			_, err = e.log.Commit(f, copy(f.Data, order))
			return err
		case !errors.Is(err, attached.ErrFull):
			return err
		}
		if err := e.collect(ctx); err != nil {
			return err
		}
	}
}

// collect waits until some orders are done.
func (e *entry) collect(ctx context.Context) error {
	var receipts [64]attached.Receipt
	n, err := e.log.Poll(receipts[:])
	for _, r := range receipts[:n] {
		if r.Err != nil {
			return fmt.Errorf("order %d: %w", r.Sequence, r.Err)
		}
	}
	e.done += uint64(n)
	if n == 0 || err != nil {
		return e.log.Wait(ctx, time.Second)
	}
	return nil
}

// finish waits until all orders are done.
func (e *entry) finish(all uint64) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for e.done < all {
		if err := e.collect(ctx); err != nil {
			return fmt.Errorf("%d of %d orders are durable: %w", e.done, all, err)
		}
	}
	return nil
}
