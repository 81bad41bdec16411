// Command risk watches ticks and orders of another machine, and reads order books there by RDMA READ. It may lose
// messages, and counts them. Nobody waits for it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/unifiedd/unifiedd/docs/examples/trading/market"
	"github.com/unifiedd/unifiedd/flows/attached"
	"github.com/unifiedd/unifiedd/flows/client"
	"github.com/unifiedd/unifiedd/umem"
)

func main() {
	socket := flag.String("socket", attached.DefaultSocket, "`path` of the socket where programs attach")
	device := flag.String("device", "roce:eth2", "RDMA `device` to read books with: no other program may use its interface")
	books := flag.String("books", "10.0.0.2:7473", "`host:port` where the state is read")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *socket, *device, *books); err != nil {
		log.Fatal("risk: ", err)
	}
}

// monitor is what the risk monitor has seen.
type monitor struct {
	books         *client.State
	ticks, orders uint64
	reads, behind uint64
	exposure      uint64 // price times quantity of all orders
	tickHop       market.Times
	orderHop      market.Times
	readTime      market.Times
	book          [market.BookLen]byte
}

// readEvery is how many ticks come between two books that are read.
const readEvery = 16

func run(ctx context.Context, socket, device, address string) (err error) {
	c, err := client.Open(client.Config{Device: device, Memory: 16 << 20, Pages: umem.Ordinary, Queue: 512})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	m := &monitor{
		tickHop: market.Times{Hop: "handler to risk monitor"}, orderHop: market.Times{Hop: "strategy to risk monitor"},
		readTime: market.Times{Hop: "READ of a book"},
	}
	if m.books, err = c.State(ctx, client.StateConfig{Address: address, State: "books"}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.books.Close()) }()
	k, err := attached.Attach(attached.Config{Socket: socket, Name: "risk"})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, k.Close()) }()
	ticks, err := market.Follow(ctx, k, "ticks")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ticks.Close()) }()
	orders, err := market.Follow(ctx, k, "orders")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, orders.Close()) }()
	for ctx.Err() == nil {
		some, err := m.look(ticks, orders)
		if err != nil {
			return err
		}
		if !some {
			_ = ticks.Wait(ctx, time.Millisecond) // orders may come meanwhile
		}
	}
	sum, err := m.sum()
	if err != nil {
		return err
	}
	r := market.Report{Program: "risk", Counts: map[string]uint64{
		"ticks": m.ticks, "ticks_lost": ticks.Lost(), "orders": m.orders, "orders_lost": orders.Lost(), "exposure": m.exposure,
		"books_read": m.reads, "books_behind": m.behind, "conflicts": m.books.Conflicts(), "books_sum": uint64(sum),
	}}
	return r.Print(os.Stdout, &m.tickHop, &m.orderHop, &m.readTime)
}

// look takes a message of each channel, if there is one.
func (m *monitor) look(ticks, orders *attached.ChannelReader) (some bool, err error) {
	var buffer [256]byte
	n, _, tick, err := ticks.Read(buffer[:])
	if err != nil {
		return false, err
	}
	if tick {
		if err := m.tick(buffer[:n]); err != nil {
			return false, err
		}
	}
	n, _, order, err := orders.Read(buffer[:])
	if err != nil || !order {
		return tick, err
	}
	var o market.Order
	if err := o.Parse(buffer[:n]); err != nil {
		return false, err
	}
	m.orderHop.Add(time.Now().UnixNano() - o.Decided)
	m.orders++
	m.exposure += o.Price * o.Quantity
	return true, nil
}

// tick takes a tick, and now and then reads the book that it has changed.
func (m *monitor) tick(b []byte) error {
	var t market.Tick
	if err := t.Parse(b); err != nil {
		return err
	}
	m.tickHop.Add(time.Now().UnixNano() - t.Handled)
	if m.ticks++; m.ticks%readEvery > 0 {
		return nil
	}
	begun := time.Now()
	n, _, err := m.books.Get(uint64(t.Instrument), m.book[:])
	switch {
	case errors.Is(err, client.ErrAgain), errors.Is(err, client.ErrNotFound):
		m.behind++ // it is being written
		return nil
	case err != nil:
		return fmt.Errorf("read the book of instrument %d: %w", t.Instrument, err)
	}
	m.readTime.Add(int64(time.Since(begun)))
	var book market.Book
	if err := book.Parse(m.book[:n]); err != nil {
		return err
	}
	if m.reads++; book.Sequence < t.Sequence {
		m.behind++ // the handler has passed the tick on, and the book is not written yet
	}
	return nil
}

// sum returns the checksum of all books.
func (m *monitor) sum() (sum uint32, err error) {
	for i := range uint64(market.Instruments) {
		n, _, err := m.books.Get(i, m.book[:])
		if err != nil && !errors.Is(err, client.ErrNotFound) {
			return 0, fmt.Errorf("read the book of instrument %d: %w", i, err)
		}
		sum = crc32.Update(sum, crc32.IEEETable, m.book[:n])
	}
	return sum, nil
}
