package fix

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Price is in 1/10000 of the currency.
type Price uint64

const (
	unit     = 10_000
	decimals = 4
)

// String returns the price as FIX has it, without zeros at its end.
func (p Price) String() string {
	whole, part := strconv.FormatUint(uint64(p)/unit, 10), fmt.Sprintf("%0*d", decimals, uint64(p)%unit)
	if part = strings.TrimRight(part, "0"); part == "" {
		return whole
	}
	return whole + "." + part
}

// parsePrice reads a price. More than four digits behind the point would be lost, so they are refused unless they are 0.
func parsePrice(text string) (Price, bool) {
	whole, part, _ := strings.Cut(text, ".")
	for len(part) > decimals && part[len(part)-1] == '0' {
		part = part[:len(part)-1]
	}
	if whole == "" || len(part) > decimals || len(whole) > 14 {
		return 0, false
	}
	n, ok := digits([]byte(whole + part + strings.Repeat("0", decimals-len(part))))
	return Price(n), ok
}

// Sides of an order.
const (
	Buy  = '1'
	Sell = '2'
)

// Logon begins a session. An end that gets one answers with one.
type Logon struct {
	Header
	Interval time.Duration // of heartbeats, in whole seconds
}

// Append appends the message to b.
func (m *Logon) Append(b []byte) ([]byte, error) {
	w := start(TypeLogon, &m.Header)
	w.text(98, "0") // no encryption
	w.number(108, uint64(max(0, m.Interval)/time.Second))
	return w.finish(b)
}

// From takes the fields of a message.
func (m *Logon) From(message *Message) error {
	seconds, err := message.number(108)
	if err == nil && (message.Type != TypeLogon || message.Text(98) != "0" || seconds > 86400) {
		err = fmt.Errorf("%w: type %q with 98=%q, 108=%d is not a logon without encryption", ErrDamaged, message.Type, message.Text(98), seconds)
	}
	*m = Logon{message.Header, time.Duration(min(seconds, 86400)) * time.Second}
	return err
}

// Heartbeat says that an end is there.
type Heartbeat struct {
	Header
	Asked string // by which test request; empty: by none
}

// Append appends the message to b.
func (m *Heartbeat) Append(b []byte) ([]byte, error) {
	w := start(TypeHeartbeat, &m.Header)
	if m.Asked != "" {
		w.text(112, m.Asked)
	}
	return w.finish(b)
}

// From takes the fields of a message.
func (m *Heartbeat) From(message *Message) error {
	*m = Heartbeat{message.Header, message.Text(112)}
	return need(message, TypeHeartbeat)
}

// NewOrder is a NewOrderSingle with a limit price.
type NewOrder struct {
	Header
	ID     string // the client's, of the order
	Symbol string
	Side   byte // Buy or Sell
	Shares uint64
	Price  Price
	Force  byte // '0': for the day, '3': immediate or cancel
}

// Append appends the message to b.
func (m *NewOrder) Append(b []byte) ([]byte, error) {
	w := start(TypeNewOrder, &m.Header)
	w.text(11, m.ID)
	w.text(55, m.Symbol)
	w.character(54, m.Side)
	w.text(60, m.At.UTC().Format(timeLayout))
	w.number(38, m.Shares)
	w.text(40, "2") // limit
	w.text(44, m.Price.String())
	w.character(59, m.Force)
	return w.finish(b)
}

// From takes the fields of a message.
func (m *NewOrder) From(message *Message) (err error) {
	*m = NewOrder{Header: message.Header, ID: message.Text(11), Symbol: message.Text(55)}
	if err = need(message, TypeNewOrder); err != nil {
		return err
	}
	if m.Side, err = message.character(54); err != nil {
		return err
	}
	if m.Force, err = message.character(59); err != nil {
		return err
	}
	if m.Shares, err = message.number(38); err != nil {
		return err
	}
	if m.Price, err = message.price(44); err != nil {
		return err
	}
	if m.ID == "" || m.Symbol == "" || m.Side != Buy && m.Side != Sell || m.Shares == 0 || message.Text(40) != "2" {
		return fmt.Errorf("%w: order %q is not one with a limit", ErrDamaged, m.ID)
	}
	return nil
}

// Report is an ExecutionReport.
type Report struct {
	Header
	Order, Execution string // the exchange's
	ID               string // the client's, of the order
	Kind             byte   // '0': new, '4': canceled, '8': rejected, 'F': a trade
	State            byte   // '0': new, '1': a part is filled, '2': filled, '4': canceled, '8': rejected
	Symbol           string
	Side             byte
	Left, Done       uint64
	Average          Price
	LastShares       uint64 // of this trade; 0: it is none
	LastPrice        Price
}

// Append appends the message to b.
func (m *Report) Append(b []byte) ([]byte, error) {
	w := start(TypeReport, &m.Header)
	w.text(37, m.Order)
	w.text(17, m.Execution)
	w.text(11, m.ID)
	w.character(150, m.Kind)
	w.character(39, m.State)
	w.text(55, m.Symbol)
	w.character(54, m.Side)
	w.number(151, m.Left)
	w.number(14, m.Done)
	w.text(6, m.Average.String())
	if m.LastShares > 0 {
		w.number(32, m.LastShares)
		w.text(31, m.LastPrice.String())
	}
	return w.finish(b)
}

// From takes the fields of a message.
func (m *Report) From(message *Message) (err error) {
	*m = Report{Header: message.Header, Order: message.Text(37), Execution: message.Text(17), ID: message.Text(11), Symbol: message.Text(55)}
	if err = need(message, TypeReport); err != nil {
		return err
	}
	for tag, to := range map[int]*byte{150: &m.Kind, 39: &m.State, 54: &m.Side} {
		if *to, err = message.character(tag); err != nil {
			return err
		}
	}
	for tag, to := range map[int]*uint64{151: &m.Left, 14: &m.Done} {
		if *to, err = message.number(tag); err != nil {
			return err
		}
	}
	if m.Average, err = message.price(6); err != nil {
		return err
	}
	if message.Text(32) != "" {
		if m.LastShares, err = message.number(32); err != nil {
			return err
		}
		if m.LastPrice, err = message.price(31); err != nil {
			return err
		}
	}
	if m.Order == "" || m.Execution == "" || m.ID == "" || m.Symbol == "" || message.Text(32) != "" && m.LastShares == 0 {
		return fmt.Errorf("%w: a report of order %q, %q lacks a name or shares", ErrDamaged, m.Order, m.ID)
	}
	return nil
}

func need(m *Message, kind string) error {
	if m.Type != kind {
		return fmt.Errorf("%w: its type is %q, and not %q", ErrDamaged, m.Type, kind)
	}
	return nil
}
