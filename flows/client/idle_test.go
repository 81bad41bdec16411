package client_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/client"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// rest waits until the threads of both clients wait, and nothing wakes them for a while.
func (e ends) rest(t *testing.T) {
	t.Helper()
	testenv.Wait(t, 20*time.Second, "the clients to rest", func() bool {
		near, far := e.near.Waits(), e.far.Waits()
		time.Sleep(50 * time.Millisecond)
		return near > 0 && far > 0 && near == e.near.Waits() && far == e.far.Waits()
	})
}

// TestIdle: clients with connections that carry nothing do not wake up. A message, its acknowledgement, an end of the
// connection and a new one each wake the client that they are for, whose waits have no limit here.
func TestIdle(t *testing.T) {
	for _, c := range []struct {
		name  string
		write bool
	}{{"sent", false}, {"written", true}} {
		t.Run(c.name, func(t *testing.T) {
			e := open(t)
			testenv.Must(t, e.near.WaitForEvents())
			testenv.Must(t, e.far.WaitForEvents())
			config := client.SinkConfig{Flow: "test", Senders: 2, Write: c.write}
			s := e.listen(t, config)
			a := e.append(t, s, client.AppendConfig{Flow: "test", Depth: 4})
			for n := range uint64(5) {
				e.rest(t)
				number, err := a.Send(within(t), message(n+1, 100))
				testenv.Must(t, err)
				m, err := s.Receive(within(t))
				testenv.Must(t, err)
				if !bytes.Equal(m.Payload, message(n+1, 100)) {
					t.Fatalf("message %d is another", n+1)
				}
				e.rest(t) // nobody has acknowledged it
				ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
				if _, err := s.Receive(ctx); !errors.Is(err, context.DeadlineExceeded) { // acknowledges it
					t.Fatalf("a message that was not sent: %v", err)
				}
				cancel()
				_, err = a.Wait(within(t), number)
				testenv.Must(t, err)
			}
			e.rest(t)
			testenv.Must(t, s.Close())
			testenv.Wait(t, 10*time.Second, "the appender to notice that", func() bool { return a.Stats().Failures > 0 })
			_, err := a.Send(within(t), message(6, 100))
			testenv.Must(t, err)
			config.Listen = s.Addr().String()
			again := e.listen(t, config)
			m, err := again.Receive(within(t))
			if err != nil || !bytes.Equal(m.Payload, message(6, 100)) {
				t.Errorf("over a new connection comes %v: %v", m, err)
			}
			e.rest(t)
			testenv.Must(t, a.Close())
		})
	}
}

// TestFeederWakes: a Feeder that had no message is asked again after Wake.
func TestFeederWakes(t *testing.T) {
	e := open(t)
	testenv.Must(t, e.near.WaitForEvents())
	testenv.Must(t, e.far.WaitForEvents())
	s := e.listen(t, client.SinkConfig{Flow: "test", Senders: 1})
	f := &letterbox{letters: make(chan []byte, 1)}
	a := e.append(t, s, client.AppendConfig{Depth: 8, Message: 100, Feed: f})
	for n := range uint64(5) {
		e.rest(t)
		f.letters <- message(n+1, 100)
		a.Wake()
		m, err := s.Receive(within(t))
		testenv.Must(t, err)
		if !bytes.Equal(m.Payload, message(n+1, 100)) {
			t.Fatalf("message %d is another", n+1)
		}
	}
}

// letterbox is a Feeder with what another goroutine has put into it.
type letterbox struct{ letters chan []byte }

func (f *letterbox) Next(b []byte) (int, bool) {
	select {
	case l := <-f.letters:
		return copy(b, l), true
	default:
		return 0, false
	}
}

func (f *letterbox) Acknowledged(client.Receipt) {}
