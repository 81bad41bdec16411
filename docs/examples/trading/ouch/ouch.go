// Package ouch writes and reads messages of OUCH (Nasdaq, O*U*C*H, version 4.2): orders to an exchange, and what it
// answers. It has those messages that the trading example needs, and it is part of that, and not of any data path.
//
// Numbers are big-endian. Texts are padded with spaces on the right. A message has one length, by its type, so a
// parser refuses each other length. SoupBinTCP (package soupbin) carries a client's messages as unsequenced data, and
// an exchange's as sequenced data.
package ouch

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrDamaged is the error of bytes that are no message.
var ErrDamaged = errors.New("damaged message of OUCH")

// Token names an order. It is the client's, and no two orders of a day have the same one.
type Token [14]byte

// Stock is the symbol of an instrument.
type Stock [8]byte

// Price is in 1/10000 of the currency.
type Price uint32

// Side is what an order does.
type Side byte

// The sides.
const (
	Buy             Side = 'B'
	Sell            Side = 'S'
	SellShort       Side = 'T'
	SellShortExempt Side = 'E'
)

// Limits and special values.
const (
	MaxShares = 999_999              // of an order
	MaxPrice  = Price(1_999_999_900) // 199,999.9900

	Immediate   uint32 = 0 // times in force: in seconds, or one of these
	MarketHours uint32 = 99998
	SystemHours uint32 = 99999
)

// Lengths of messages in bytes.
const (
	EnterLen    = 49
	CancelLen   = 19
	EventLen    = 10
	AcceptedLen = 66
	ExecutedLen = 40
	CanceledLen = 28
	RejectedLen = 24
)

// Places of fields in an Enter message that a program may fill in a message that it has prepared.
const (
	EnterToken  = 1
	EnterSide   = 15
	EnterShares = 16
	EnterStock  = 20
	EnterPrice  = 28
)

// Enter enters an order.
type Enter struct {
	Token       Token
	Side        Side
	Shares      uint32
	Stock       Stock
	Price       Price
	TimeInForce uint32
	Firm        [4]byte
	Display     byte // 'Y': visible
	Capacity    byte // 'P': principal
	Sweep       byte // 'N': no intermarket sweep
	Least       uint32
	Cross       byte // 'N': no cross
	Customer    byte // 'R': retail, 'N': not
}

// Append appends the message to b.
func (m *Enter) Append(b []byte) []byte {
	b = append(append(append(b, 'O'), m.Token[:]...), byte(m.Side))
	b = append(binary.BigEndian.AppendUint32(b, m.Shares), m.Stock[:]...)
	b = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(b, uint32(m.Price)), m.TimeInForce)
	b = append(append(b, m.Firm[:]...), m.Display, m.Capacity, m.Sweep)
	return append(binary.BigEndian.AppendUint32(b, m.Least), m.Cross, m.Customer)
}

// Parse reads the message. It checks what an exchange refuses: side, shares and price.
func (m *Enter) Parse(b []byte) error {
	if err := whole(b, 'O', EnterLen); err != nil {
		return err
	}
	be := binary.BigEndian
	*m = Enter{
		Token: Token(b[1:]), Side: Side(b[15]), Shares: be.Uint32(b[16:]), Stock: Stock(b[20:]), Price: Price(be.Uint32(b[28:])),
		TimeInForce: be.Uint32(b[32:]), Firm: [4]byte(b[36:]), Display: b[40], Capacity: b[41], Sweep: b[42], Least: be.Uint32(b[43:]),
		Cross: b[47], Customer: b[48],
	}
	switch {
	case m.Side != Buy && m.Side != Sell && m.Side != SellShort && m.Side != SellShortExempt:
		return fmt.Errorf("%w: order %q has the side %q", ErrDamaged, m.Token, byte(m.Side))
	case m.Shares == 0 || m.Shares > MaxShares:
		return fmt.Errorf("%w: order %q is for %d shares, and from 1 to %d are possible", ErrDamaged, m.Token, m.Shares, MaxShares)
	case m.Price == 0 || m.Price > MaxPrice:
		return fmt.Errorf("%w: order %q has the price %d, and from 1 to %d are possible", ErrDamaged, m.Token, m.Price, MaxPrice)
	}
	return nil
}

// Cancel reduces an order.
type Cancel struct {
	Token  Token
	Shares uint32 // that are left of it at most; 0: none
}

// Append appends the message to b.
func (m *Cancel) Append(b []byte) []byte {
	return binary.BigEndian.AppendUint32(append(append(b, 'X'), m.Token[:]...), m.Shares)
}

// Parse reads the message.
func (m *Cancel) Parse(b []byte) error {
	if err := whole(b, 'X', CancelLen); err != nil {
		return err
	}
	*m = Cancel{Token(b[1:]), binary.BigEndian.Uint32(b[15:])}
	return nil
}

// Event is an event of the exchange's day.
type Event struct {
	Time uint64 // nanoseconds since midnight, as in all messages of an exchange
	Code byte   // 'S': the day begins, 'E': it ends
}

// Append appends the message to b.
func (m *Event) Append(b []byte) []byte { return append(stamped(b, 'S', m.Time), m.Code) }

// Parse reads the message.
func (m *Event) Parse(b []byte) error {
	if err := whole(b, 'S', EventLen); err != nil {
		return err
	}
	*m = Event{binary.BigEndian.Uint64(b[1:]), b[9]}
	return nil
}

// Accepted says that an order was accepted, and what became of it.
type Accepted struct {
	Time      uint64
	Order     Enter  // without Customer, which the message does not have
	Reference uint64 // the exchange's number of the order
	State     byte   // 'L': live, 'D': dead
	Weight    byte   // what the order means for the best bid and offer, ' ' if nothing is said
}

// Append appends the message to b.
func (m *Accepted) Append(b []byte) []byte {
	o := &m.Order
	b = append(append(stamped(b, 'A', m.Time), o.Token[:]...), byte(o.Side))
	b = append(binary.BigEndian.AppendUint32(b, o.Shares), o.Stock[:]...)
	b = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(b, uint32(o.Price)), o.TimeInForce)
	b = binary.BigEndian.AppendUint64(append(append(b, o.Firm[:]...), o.Display), m.Reference)
	b = binary.BigEndian.AppendUint32(append(b, o.Capacity, o.Sweep), o.Least)
	return append(b, o.Cross, m.State, m.Weight)
}

// Parse reads the message.
func (m *Accepted) Parse(b []byte) error {
	if err := whole(b, 'A', AcceptedLen); err != nil {
		return err
	}
	be := binary.BigEndian
	*m = Accepted{
		Time: be.Uint64(b[1:]), Reference: be.Uint64(b[49:]), State: b[64], Weight: b[65],
		Order: Enter{
			Token: Token(b[9:]), Side: Side(b[23]), Shares: be.Uint32(b[24:]), Stock: Stock(b[28:]), Price: Price(be.Uint32(b[36:])),
			TimeInForce: be.Uint32(b[40:]), Firm: [4]byte(b[44:]), Display: b[48], Capacity: b[57], Sweep: b[58], Least: be.Uint32(b[59:]), Cross: b[63],
		},
	}
	return nil
}

// Executed says that an order was executed, or a part of it.
type Executed struct {
	Time      uint64
	Token     Token
	Shares    uint32
	Price     Price
	Liquidity byte // 'A': added, 'R': removed
	Match     uint64
}

// Append appends the message to b.
func (m *Executed) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(append(stamped(b, 'E', m.Time), m.Token[:]...), m.Shares)
	return binary.BigEndian.AppendUint64(append(binary.BigEndian.AppendUint32(b, uint32(m.Price)), m.Liquidity), m.Match)
}

// Parse reads the message.
func (m *Executed) Parse(b []byte) error {
	if err := whole(b, 'E', ExecutedLen); err != nil {
		return err
	}
	be := binary.BigEndian
	*m = Executed{be.Uint64(b[1:]), Token(b[9:]), be.Uint32(b[23:]), Price(be.Uint32(b[27:])), b[31], be.Uint64(b[32:])}
	return nil
}

// Canceled says that shares of an order were canceled.
type Canceled struct {
	Time   uint64
	Token  Token
	Shares uint32 // by which the order was reduced
	Reason byte   // 'U': the client asked, 'I': it could not be executed at once, 'T': its time is over
}

// Append appends the message to b.
func (m *Canceled) Append(b []byte) []byte {
	return append(binary.BigEndian.AppendUint32(append(stamped(b, 'C', m.Time), m.Token[:]...), m.Shares), m.Reason)
}

// Parse reads the message.
func (m *Canceled) Parse(b []byte) error {
	if err := whole(b, 'C', CanceledLen); err != nil {
		return err
	}
	*m = Canceled{binary.BigEndian.Uint64(b[1:]), Token(b[9:]), binary.BigEndian.Uint32(b[23:]), b[27]}
	return nil
}

// Rejected says that an order was not accepted.
type Rejected struct {
	Time   uint64
	Token  Token
	Reason byte // 'H': the stock is halted, 'Z': too many shares, 'X': the price is not possible, and more
}

// Append appends the message to b.
func (m *Rejected) Append(b []byte) []byte {
	return append(append(stamped(b, 'J', m.Time), m.Token[:]...), m.Reason)
}

// Parse reads the message.
func (m *Rejected) Parse(b []byte) error {
	if err := whole(b, 'J', RejectedLen); err != nil {
		return err
	}
	*m = Rejected{binary.BigEndian.Uint64(b[1:]), Token(b[9:]), b[23]}
	return nil
}

func stamped(b []byte, kind byte, at uint64) []byte {
	return binary.BigEndian.AppendUint64(append(b, kind), at)
}

// whole checks the type and the length of a message.
func whole(b []byte, kind byte, length int) error {
	switch {
	case len(b) == 0:
		return fmt.Errorf("%w: it is empty, and not of type %q", ErrDamaged, kind)
	case b[0] != kind:
		return fmt.Errorf("%w: its type is %q, and not %q", ErrDamaged, b[0], kind)
	case len(b) != length:
		return fmt.Errorf("%w: one of type %q has %d bytes, and not %d", ErrDamaged, kind, length, len(b))
	}
	return nil
}
