package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/unifiedd/unifiedd/docs/examples/trading/market"
	"github.com/unifiedd/unifiedd/docs/examples/trading/ouch"
	"github.com/unifiedd/unifiedd/docs/examples/trading/soupbin"
	"github.com/unifiedd/unifiedd/flows/attached"
)

// exchange is a session of SoupBinTCP with an exchange, with orders of OUCH. The daemon has the connection: its flow
// sends each packet that is committed, in a segment of its own, and gives what the exchange says.
type exchange struct {
	orders  *attached.Sender
	replies *attached.Receiver

	ready, ended bool // the exchange has accepted the login, or ended the session
	accepted     uint64
	said         time.Time        // when something was sent
	entered      map[uint64]times // by number of the order: those that the exchange has not accepted yet
	packet       [soupbin.HeaderLen + ouch.EnterLen]byte
	stream       []byte // of the exchange, that is not a whole packet yet
	hop, all     market.Times
}

// times are when an order was entered, and when the exchange sent the tick that it answers.
type times struct{ entered, sent int64 }

// connect opens the flow to the exchange, which answers once the daemon is connected, and logs in.
func connect(ctx context.Context, k *attached.Client) (e *exchange, err error) {
	e = &exchange{entered: map[uint64]times{}, hop: market.Times{Hop: "order entry to wire"}, all: market.Times{Hop: "exchange to order on the wire"}}
	if e.orders, err = k.Send("exchange", 0); err != nil {
		return nil, err
	}
	if e.replies, err = k.Receive("exchange", 0); err == nil {
		err = e.login(ctx)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("log in to the exchange: %w", err), e.close())
	}
	return e, nil
}

func (e *exchange) close() error {
	err := e.orders.Close()
	if e.replies != nil {
		err = errors.Join(err, e.replies.Close())
	}
	return err
}

func (e *exchange) login(ctx context.Context) error {
	l := soupbin.Login{User: "desk", Password: "orders", Sequence: 1}
	b, err := l.Append(nil)
	if err == nil {
		err = e.send(ctx, b)
	}
	for err == nil && !e.ready {
		if err = e.replies.Wait(ctx, time.Second); err == nil {
			err = e.look(ctx)
		}
	}
	return err
}

// enter sends an order.
func (e *exchange) enter(ctx context.Context, o *market.Order) error {
	m, err := o.Enter()
	if err != nil {
		return err
	}
	var message [ouch.EnterLen]byte
	b := soupbin.Append(e.packet[:0], soupbin.UnsequencedData, m.Append(message[:0])...)
	e.entered[o.Number] = times{time.Now().UnixNano(), o.Sent}
	return e.send(ctx, b)
}

// send submits a packet. It waits only if the flow has not taken those before it.
func (e *exchange) send(ctx context.Context, b []byte) error {
	for {
		f, err := e.orders.Claim()
		if err == nil {
			_, err = e.orders.Commit(f, copy(f.Data, b))
			e.said = time.Now()
		}
		if !errors.Is(err, attached.ErrFull) {
			return err
		}
		if err := e.collect(); err != nil {
			return err
		}
		if err := e.orders.Wait(ctx, time.Second); err != nil {
			return err
		}
	}
}

// collect looks what became of packets. A limit of the flow may have refused one, or the kill switch. If the connection
// has ended, so has the session: orders that were not accepted are to be reconciled with the exchange.
func (e *exchange) collect() error {
	var receipts [64]attached.Receipt
	for {
		n, err := e.orders.Poll(receipts[:])
		for _, r := range receipts[:n] {
			if r.Err != nil {
				return fmt.Errorf("packet %d to the exchange: %w", r.Sequence, r.Err)
			}
		}
		if err != nil || n < len(receipts) {
			return err
		}
	}
}

// look takes what the exchange has said, and says what is due.
func (e *exchange) look(ctx context.Context) error {
	var pieces [16]attached.Message
	n, err := e.replies.Poll(pieces[:])
	for i := range pieces[:n] {
		e.stream = append(e.stream, pieces[i].Data...)
	}
	e.replies.Release(pieces[:n])
	for err == nil {
		p, length, failed := soupbin.Next(e.stream)
		if length == 0 || failed != nil {
			err = failed
			break
		}
		err = e.read(p)
		e.stream = e.stream[:copy(e.stream, e.stream[length:])]
	}
	if err == nil && !e.ended {
		err = e.collect()
	}
	if err == nil && !e.ended && time.Since(e.said) >= soupbin.HeartbeatInterval {
		err = e.send(ctx, soupbin.Append(nil, soupbin.ClientHeartbeat))
	}
	return err
}

// read takes a packet of the exchange.
func (e *exchange) read(p soupbin.Packet) error {
	switch p.Type {
	case soupbin.LoginAccepted:
		e.ready = true
	case soupbin.LoginRejected:
		var r soupbin.Rejection
		if err := r.Parse(p.Payload); err != nil {
			return err
		}
		return r
	case soupbin.ServerHeartbeat, soupbin.Debug:
	case soupbin.EndOfSession:
		e.ended = true
	case soupbin.SequencedData:
		var m ouch.Accepted
		if err := m.Parse(p.Payload); err != nil {
			return err
		}
		return e.accept(&m)
	default:
		return fmt.Errorf("a packet of type %q does not belong here", byte(p.Type))
	}
	return nil
}

// accept takes the exchange's answer to an order, which says when the order arrived there.
func (e *exchange) accept(m *ouch.Accepted) error {
	n := market.NumberOf(m.Order.Token)
	t, known := e.entered[n]
	if !known {
		return fmt.Errorf("the exchange accepts order %q, which was not entered or is accepted already", m.Order.Token)
	}
	delete(e.entered, n)
	e.accepted++
	e.hop.Add(market.Between(t.entered, m.Time))
	e.all.Add(market.Between(t.sent, m.Time))
	return nil
}

// finish waits until the exchange has accepted so many orders, and logs out.
func (e *exchange) finish(ctx context.Context, all uint64) error {
	for out := false; !e.ended; {
		if e.accepted >= all && !out {
			if err := e.send(ctx, soupbin.Append(nil, soupbin.LogoutRequest)); err != nil {
				return err
			}
			out = true
		}
		if err := e.look(ctx); err != nil {
			return fmt.Errorf("%d of %d orders are accepted: %w", e.accepted, all, err)
		}
		if !e.ended {
			if err := e.replies.Wait(ctx, pause); err != nil {
				return fmt.Errorf("%d of %d orders are accepted: %w", e.accepted, all, err)
			}
		}
	}
	return nil
}
