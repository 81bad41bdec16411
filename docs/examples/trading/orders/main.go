// Command orders is the order entry: it reads orders from a channel, sends each to the exchange, and appends it to a log.
// An order is done when the exchange has accepted it and the log has it durably.
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

// entry takes orders. They come one after the other.
type entry struct {
	channel  *attached.ChannelReader
	exchange *exchange
	record   *record
	got      uint64
	hop, all market.Times
}

func run(ctx context.Context, socket string) (err error) {
	k, err := attached.Attach(attached.Config{Socket: socket, Name: "orders"})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, k.Close()) }()
	e := &entry{hop: market.Times{Hop: "strategy to order entry"}, all: market.Times{Hop: "exchange to order entry"}}
	if e.record, err = openRecord(k); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.record.close()) }()
	if e.exchange, err = connect(ctx, k); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.exchange.close()) }()
	if e.channel, err = market.Follow(ctx, k, "orders"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.channel.Close()) }()

	if err := e.work(ctx); err != nil {
		return err
	}
	if err := e.finish(); err != nil {
		return err
	}
	r := market.Report{Program: "orders", Counts: map[string]uint64{
		"orders": e.got, "lost": e.channel.Lost(), "accepted": e.exchange.accepted, "durable": e.record.done,
	}}
	return r.Print(os.Stdout, &e.hop, &e.all, &e.exchange.hop, &e.exchange.all)
}

// work takes orders until ctx ends.
func (e *entry) work(ctx context.Context) error {
	for buffer := make([]byte, e.channel.Longest()); ctx.Err() == nil; {
		n, _, some, err := e.channel.Read(buffer)
		if err == nil && some {
			err = e.take(ctx, buffer[:n])
		}
		if err == nil {
			err = e.exchange.look(ctx)
		}
		if err == nil && !some {
			err = e.channel.Wait(ctx, pause) // the exchange may say something meanwhile
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// pause is how long the exchange's answers may wait, while no order comes.
const pause = 20 * time.Millisecond

// take sends an order to the exchange, and then to the log.
func (e *entry) take(ctx context.Context, b []byte) error {
	now := time.Now().UnixNano()
	var o market.Order
	if err := o.Parse(b); err != nil {
		return err
	}
	e.got++
	if o.Number != e.got+e.channel.Lost() {
		return fmt.Errorf("order %d has come, and %d was to come", o.Number, e.got+e.channel.Lost())
	}
	if err := e.exchange.enter(ctx, &o); err != nil {
		return fmt.Errorf("order %d: %w", o.Number, err)
	}
	e.hop.Add(now - o.Decided)
	e.all.Add(now - o.Sent)
	return e.record.append(ctx, b)
}

// finish waits until all orders are done, and logs out.
func (e *entry) finish() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := e.exchange.finish(ctx, e.got); err != nil {
		return err
	}
	return e.record.finish(ctx, e.got)
}
