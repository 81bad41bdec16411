package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/attach/wire"
	"github.com/unifiedd/unifiedd/flows/attached"
)

// stream is the trader's connection to the exchange.
type stream interface {
	// send sends bytes. If there is no room for them, it waits. stamp is that of the tick which they answer; 0: none.
	send(ctx context.Context, b []byte, stamp uint64) error
	// receive takes what the exchange has said; 0: nothing. It returns errClosed at the end.
	receive(b []byte) (int, error)
}

// kernelStream is a connection of the program itself.
type kernelStream struct{ fd int }

func (s kernelStream) send(ctx context.Context, b []byte, _ uint64) error {
	for len(b) > 0 {
		n, errno := write(s.fd, b)
		switch {
		case errno == 0:
			b = b[n:]
		case errno == unix.EAGAIN:
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			wait([]unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLOUT}}, 100*time.Millisecond)
		case errno != unix.EINTR:
			return fmt.Errorf("send an order: %w", errno)
		}
	}
	return nil
}

func (s kernelStream) receive(b []byte) (int, error) {
	n, _, errno := receive(s.fd, b, nil, 0)
	switch {
	case errno == unix.EAGAIN || errno == unix.EINTR:
		return 0, nil
	case errno != 0:
		return 0, fmt.Errorf("receive from the exchange: %w", errno)
	case n == 0:
		return 0, errClosed
	}
	return n, nil
}

// flowStream is a connection of a daemon: a flow sends what this program submits, and gives what the exchange says.
type flowStream struct {
	orders   *attached.Sender
	replies  *attached.Receiver
	piece    [1]attached.Message // of the exchange's stream
	rest     []byte              // of the piece, that was not taken yet
	receipts [64]attached.Receipt
}

// openFlow opens a flow to the exchange in both directions. The daemon answers when it is connected.
func openFlow(k *attached.Client, flow string) (s *flowStream, err error) {
	s = &flowStream{}
	if s.orders, err = k.Send(flow, 0); err != nil {
		return nil, err
	}
	if s.replies, err = k.Receive(flow, 0); err != nil {
		return nil, errors.Join(fmt.Errorf("%w (the flow needs to.order.replies: true)", err), s.orders.Close())
	}
	return s, nil
}

func (s *flowStream) close() error { return errors.Join(s.orders.Close(), s.replies.Close()) }

func (s *flowStream) send(ctx context.Context, b []byte, stamp uint64) error {
	for {
		f, err := s.orders.Claim()
		if err == nil {
			if len(f.Data) < len(b) {
				return fmt.Errorf("send an order: it has %d bytes, and the flow takes %d (from.message)", len(b), len(f.Data))
			}
			if n := copy(f.Data, b); stamp > 0 {
				_, err = s.orders.CommitAnswer(f, n, stamp)
			} else {
				_, err = s.orders.Commit(f, n)
			}
		}
		if !errors.Is(err, attached.ErrFull) {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := s.settle(); err != nil {
			return err
		}
	}
}

// settle reads what became of orders. One that came behind the end of the connection is not done, which is right: the
// exchange does not wait for it.
func (s *flowStream) settle() error {
	n, err := s.orders.Poll(s.receipts[:])
	for _, r := range s.receipts[:n] {
		if r.Err != nil && !errors.Is(r.Err, wire.NotDone) && !errors.Is(r.Err, wire.Closing) {
			return fmt.Errorf("order %d: %w", r.Sequence, r.Err)
		}
	}
	return ended(err)
}

// ended makes errClosed of the error of a port that the daemon has closed, as it does when a connection has ended.
func ended(err error) error {
	if refused, is := errors.AsType[*attached.RefusedError](err); is && refused.Reason == wire.Closing.String() {
		return errClosed
	}
	return err
}

func (s *flowStream) receive(b []byte) (int, error) {
	if len(s.rest) == 0 {
		s.replies.Release(s.piece[:])
		n, err := s.replies.Poll(s.piece[:])
		if err != nil {
			return 0, ended(err)
		}
		if n == 0 {
			return 0, s.settle()
		}
		s.rest = s.piece[0].Data
	}
	n := copy(b, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}
