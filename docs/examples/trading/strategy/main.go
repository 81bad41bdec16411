// Command strategy reads ticks from a channel and writes an order for each tick of a best price to another one.
package main

import (
	"context"
	"errors"
	"flag"
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
	record := flag.String("record", "", "`file` for all orders, as they are in the channel")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *socket, *record); err != nil {
		log.Fatal("strategy: ", err)
	}
}

// create creates a file, or one that keeps nothing if it has no name.
func create(name string) (*os.File, error) {
	if name == "" {
		return os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	}
	return os.Create(name)
}

func run(ctx context.Context, socket, record string) (err error) {
	asked, err := create(record)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, asked.Close()) }()
	k, err := attached.Attach(attached.Config{Socket: socket, Name: "strategy"})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, k.Close()) }()
	orders, err := k.WriteChannel("orders")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, orders.Close()) }()
	ticks, err := market.Follow(ctx, k, "ticks")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ticks.Close()) }()

	var tick market.Tick
	var order [market.OrderLen]byte
	hop := market.Times{Hop: "handler to strategy"}
	number, buffer := uint64(0), make([]byte, ticks.Longest())
	for {
		b, err := market.Next(ctx, ticks, buffer)
		if ctx.Err() != nil {
			break
		}
		if err == nil {
			err = tick.Parse(b)
		}
		if err != nil {
			return err
		}
		now := time.Now().UnixNano()
		hop.Add(now - tick.Handled)
		if tick.Level != 0 {
			continue
		}
		number++
		o := market.Order{Tick: tick, Decided: now, Number: number}
		o.Put(order[:])
		if _, err := orders.WriteWait(ctx, order[:]); err != nil {
			return err
		}
		if _, err := asked.Write(order[:]); err != nil {
			return err
		}
	}
	r := market.Report{Program: "strategy", Counts: map[string]uint64{"orders": number, "lost": ticks.Lost()}}
	return r.Print(os.Stdout, &hop)
}
