// Package market has the messages of the trading example. All numbers are little-endian.
package market

import (
	"encoding/binary"
	"fmt"
)

// Side is a side of an order book.
type Side uint8

// Sides.
const (
	Bid Side = iota
	Ask
)

// Levels is the number of price levels on each side of a book.
const Levels = 10

// Instruments is the number of instruments, numbered from 0 on.
const Instruments = 64

// Update sets a level of an order book. The exchange sends each update in a UDP packet of its own.
type Update struct {
	Sent       int64  // when the exchange has sent it: nanoseconds since 1970
	Sequence   uint64 // from 1 on
	Instrument uint32
	Side       Side
	Level      uint8 // from 0, the best price, on
	Price      uint64
	Quantity   uint64
}

// UpdateLen is the length of an update in bytes.
const UpdateLen = 40

// Put writes an update to the start of b.
func (u *Update) Put(b []byte) {
	le := binary.LittleEndian
	le.PutUint64(b, uint64(u.Sent))
	le.PutUint64(b[8:], u.Sequence)
	le.PutUint32(b[16:], u.Instrument)
	b[20], b[21], b[22], b[23] = byte(u.Side), u.Level, 0, 0
	le.PutUint64(b[24:], u.Price)
	le.PutUint64(b[32:], u.Quantity)
}

// Parse reads an update from the start of b.
func (u *Update) Parse(b []byte) error {
	if len(b) < UpdateLen {
		return fmt.Errorf("an update has %d bytes, and not %d", len(b), UpdateLen)
	}
	le := binary.LittleEndian
	*u = Update{
		Sent: int64(le.Uint64(b)), Sequence: le.Uint64(b[8:]), Instrument: le.Uint32(b[16:]), Side: Side(b[20]), Level: b[21],
		Price: le.Uint64(b[24:]), Quantity: le.Uint64(b[32:]),
	}
	if u.Instrument >= Instruments || u.Side > Ask || u.Level >= Levels {
		return fmt.Errorf("update %d is about instrument %d, side %d, level %d", u.Sequence, u.Instrument, u.Side, u.Level)
	}
	return nil
}

// Tick is an update as the handler passes it on.
type Tick struct {
	Update
	Handled int64 // when the handler got it: nanoseconds since 1970
}

// TickLen is the length of a tick in bytes.
const TickLen = UpdateLen + 8

// Put writes a tick to the start of b.
func (t *Tick) Put(b []byte) {
	t.Update.Put(b)
	binary.LittleEndian.PutUint64(b[UpdateLen:], uint64(t.Handled))
}

// Parse reads a tick from the start of b.
func (t *Tick) Parse(b []byte) error {
	if len(b) < TickLen {
		return fmt.Errorf("a tick has %d bytes, and not %d", len(b), TickLen)
	}
	t.Handled = int64(binary.LittleEndian.Uint64(b[UpdateLen:]))
	return t.Update.Parse(b)
}

// Order buys or sells for the price of the tick that caused it.
type Order struct {
	Tick
	Decided int64  // when the strategy had the tick: nanoseconds since 1970
	Number  uint64 // from 1 on
}

// OrderLen is the length of an order in bytes.
const OrderLen = TickLen + 16

// Put writes an order to the start of b.
func (o *Order) Put(b []byte) {
	o.Tick.Put(b)
	binary.LittleEndian.PutUint64(b[TickLen:], uint64(o.Decided))
	binary.LittleEndian.PutUint64(b[TickLen+8:], o.Number)
}

// Parse reads an order from the start of b.
func (o *Order) Parse(b []byte) error {
	if len(b) < OrderLen {
		return fmt.Errorf("an order has %d bytes, and not %d", len(b), OrderLen)
	}
	o.Decided = int64(binary.LittleEndian.Uint64(b[TickLen:]))
	o.Number = binary.LittleEndian.Uint64(b[TickLen+8:])
	return o.Tick.Parse(b)
}

// Book is the order book of an instrument.
type Book struct {
	Sequence uint64 // of the last update
	Sent     int64  // of the last update
	Levels   [2][Levels]Level
}

// Level is the price and quantity of a level; a quantity of 0: there is none.
type Level struct{ Price, Quantity uint64 }

// BookLen is the length of a book in bytes.
const BookLen = 16 + 2*Levels*16

// Apply sets a level.
func (k *Book) Apply(u *Update) {
	k.Sequence, k.Sent = u.Sequence, u.Sent
	k.Levels[u.Side][u.Level] = Level{u.Price, u.Quantity}
}

// Put writes a book to the start of b.
func (k *Book) Put(b []byte) {
	le := binary.LittleEndian
	le.PutUint64(b, k.Sequence)
	le.PutUint64(b[8:], uint64(k.Sent))
	at := 16
	for side := range k.Levels {
		for _, l := range k.Levels[side] {
			le.PutUint64(b[at:], l.Price)
			le.PutUint64(b[at+8:], l.Quantity)
			at += 16
		}
	}
}

// Parse reads a book from the start of b.
func (k *Book) Parse(b []byte) error {
	if len(b) != BookLen {
		return fmt.Errorf("a book has %d bytes, and not %d", len(b), BookLen)
	}
	le := binary.LittleEndian
	k.Sequence, k.Sent = le.Uint64(b), int64(le.Uint64(b[8:]))
	at := 16
	for side := range k.Levels {
		for i := range k.Levels[side] {
			k.Levels[side][i] = Level{le.Uint64(b[at:]), le.Uint64(b[at+8:])}
			at += 16
		}
	}
	return nil
}
