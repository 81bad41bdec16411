// Command handler takes packets of the exchange from a flow. It writes each update to a channel, and the order book that
// it changes to a state.
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
)

func main() {
	socket := flag.String("socket", attached.DefaultSocket, "`path` of the socket where programs attach")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *socket); err != nil {
		log.Fatal("handler: ", err)
	}
}

// handler has the ends of the flows and channels, and the books.
type handler struct {
	packets *attached.Receiver
	ticks   *attached.ChannelWriter
	state   *attached.Sender
	books   [market.Instruments]market.Book
	hop     market.Times
	updates uint64
	gaps    uint64 // updates of the exchange that did not come
	next    uint64
	encoded [market.BookLen]byte
}

func run(ctx context.Context, socket string) (err error) {
	k, err := attached.Attach(attached.Config{Socket: socket, Name: "handler"})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, k.Close()) }()
	h := &handler{hop: market.Times{Hop: "exchange to handler"}, next: 1}
	if h.ticks, err = k.WriteChannel("ticks"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.ticks.Close()) }()
	if h.state, err = k.Send("books", 0); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.state.Close()) }()
	if h.packets, err = k.Receive("md", 0); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.packets.Close()) }()
	var got [64]attached.Message
	for ctx.Err() == nil {
		n, err := h.packets.Poll(got[:])
		for i := range got[:n] {
			if err := h.handle(ctx, &got[i]); err != nil {
				return err
			}
		}
		h.packets.Release(got[:n])
		if n == 0 || err != nil {
			if err := h.packets.Wait(ctx, time.Second); err != nil && ctx.Err() == nil {
				return err
			}
		}
	}
	r := market.Report{Program: "handler", Counts: map[string]uint64{"updates": h.updates, "gaps": h.gaps, "books_sum": uint64(h.sum())}}
	return r.Print(os.Stdout, &h.hop)
}

// sum returns the checksum of all books.
func (h *handler) sum() (sum uint32) {
	for i := range h.books {
		if book := &h.books[i]; book.Sequence > 0 {
			book.Put(h.encoded[:])
			sum = crc32.Update(sum, crc32.IEEETable, h.encoded[:])
		}
	}
	return sum
}

// handle handles a packet.
func (h *handler) handle(ctx context.Context, m *attached.Message) error {
	t := market.Tick{Handled: time.Now().UnixNano()}
	payload, err := market.Payload(m.Data)
	if err == nil {
		err = t.Update.Parse(payload)
	}
	if err != nil {
		return fmt.Errorf("packet %d: %w", m.Position, err)
	}
	h.hop.Add(t.Handled - t.Sent)
	h.updates++
	h.gaps += t.Sequence - h.next
	h.next = t.Sequence + 1
	var tick [market.TickLen]byte
	t.Put(tick[:])
	if _, err := h.ticks.WriteWait(ctx, tick[:]); err != nil {
		return err
	}
	book := &h.books[t.Instrument]
	book.Apply(&t.Update)
	return h.publish(ctx, t.Instrument, book)
}

// publish writes a book to the state.
func (h *handler) publish(ctx context.Context, instrument uint32, book *market.Book) error {
	for {
		f, err := h.state.Claim()
		switch {
		case err == nil:
			book.Put(h.encoded[:])
			update := attached.AppendPutObject(f.Data[:0], uint64(instrument), h.encoded[:])
			_, err = h.state.Commit(f, len(update))
			return err
		case !errors.Is(err, attached.ErrFull):
			return err
		}
		var receipts [64]attached.Receipt
		n, err := h.state.Poll(receipts[:])
		for _, r := range receipts[:n] {
			if r.Err != nil {
				return fmt.Errorf("update %d of the books: %w", r.Sequence, r.Err)
			}
		}
		if n == 0 || err != nil {
			if err := h.state.Wait(ctx, time.Second); err != nil {
				return err
			}
		}
	}
}
