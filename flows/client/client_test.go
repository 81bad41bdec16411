package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/client"
	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
)

// ends are two programs, each with an interface of a veth pair in its own namespace. They connect
// over TCP on this machine's loopback.
type ends struct{ near, far *client.Client }

// open opens both clients. The end of the test closes them, which fails if a client has not got all
// its frames back.
func open(t *testing.T) ends {
	t.Helper()
	testenv.Root(t)
	testenv.Leaks(t)
	pair := testenv.NewPair(t, testenv.PairOptions{})
	at := func(e *testenv.End) (k *client.Client) {
		e.Do(t, func() {
			var err error
			k, err = client.Open(client.Config{Device: "roce:" + e.Ifname, Memory: 16 << 20, Pages: umem.Ordinary, Extent: 64 << 10, Extents: 16, Queue: 256,
				Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
			testenv.Must(t, err)
		})
		t.Cleanup(func() { testenv.Must(t, k.Close()) })
		return k
	}
	return ends{at(&pair.A), at(&pair.B)}
}

// within returns a context with the time limit for an operation that must succeed.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Within(30*time.Second))
	t.Cleanup(cancel)
	return ctx
}

// listen opens a sink. The end of the test closes it.
func (e ends) listen(t *testing.T, c client.SinkConfig) *client.Sink {
	t.Helper()
	if c.Listen == "" {
		c.Listen = "127.0.0.1:0"
	}
	c.AllowAnyGID = true // TCP goes over loopback here, and the devices are in namespaces
	s, err := e.far.Listen(within(t), c)
	testenv.Must(t, err)
	t.Cleanup(func() { testenv.Must(t, s.Close()) })
	return s
}

// append opens an appender to a sink. The end of the test closes it.
func (e ends) append(t *testing.T, s *client.Sink, c client.AppendConfig) *client.Appender {
	t.Helper()
	c.Address = s.Addr().String()
	a, err := e.near.Append(within(t), c)
	testenv.Must(t, err)
	t.Cleanup(func() { testenv.Must(t, a.Close()) })
	return a
}

// message returns the bytes of a message.
func message(n uint64, size int) []byte {
	b := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{byte(n), byte(n >> 8)}).Read(b)
	return b
}

// TestMessages: messages of any permitted length arrive once, in order and unchanged, sent or
// written, in frames or in extents. Wait returns the acknowledgement of a message.
func TestMessages(t *testing.T) {
	for _, c := range []struct {
		name  string
		write bool
		sizes []int
	}{
		{"sent", false, []int{0, 1, 63, 64, 1500, 4031, 4032}},
		{"written", true, []int{0, 1, 63, 64, 1500, 4031, 4032}},
		{"long", false, []int{4033, 0, 60000}},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := open(t)
			config := client.SinkConfig{Flow: "test", Write: c.write, Window: 4, Senders: 1}
			longest := c.sizes[len(c.sizes)-1]
			if longest > 4032 {
				config.Message = longest
			}
			s := e.listen(t, config)
			a := e.append(t, s, client.AppendConfig{Flow: "test", Message: longest, Depth: 4})
			const rounds = 20
			sent := make(chan error, 1)
			go func() { sent <- sendAll(within(t), a, c.sizes, rounds) }()
			session := uint64(0)
			for n := range uint64(rounds * len(c.sizes)) {
				m, err := s.Receive(within(t))
				testenv.Must(t, err)
				if want := message(n+1, c.sizes[n%uint64(len(c.sizes))]); !bytes.Equal(m.Payload, want) || m.Sequence != n+1 || m.Position != 0 || time.Since(m.Stamp) > time.Hour {
					t.Fatalf("message %d has %d bytes, of %d, and is %d of its session, at %d, of %v", n+1, len(m.Payload), len(want), m.Sequence, m.Position, m.Stamp)
				}
				if session == 0 {
					session = m.Session
				}
				if m.Session != session {
					t.Fatalf("message %d is of session %x, those before of %x", n+1, m.Session, session)
				}
			}
			testenv.Must(t, <-sent)
			testenv.Must(t, s.Close()) // acknowledges the last message
			r, err := a.Wait(within(t), uint64(rounds*len(c.sizes)))
			if err != nil || r.Number != uint64(rounds*len(c.sizes)) || r.Position != 0 {
				t.Errorf("the last message is acknowledged by %+v, %v", r, err)
			}
			if n := s.Stats().Granted; n != 0 {
				t.Errorf("%d frames are granted in the end", n)
			}
		})
	}
}

func sendAll(ctx context.Context, a *client.Appender, sizes []int, rounds int) error {
	for n := range uint64(rounds * len(sizes)) {
		if number, err := a.Send(ctx, message(n+1, sizes[n%uint64(len(sizes))])); err != nil || number != n+1 {
			return fmt.Errorf("message %d is number %d: %w", n+1, number, err)
		}
	}
	return nil
}

// TestSendWaits: Send waits while Depth messages are unacknowledged, and continues when there are
// fewer. It refuses a message that is too long. A closed appender returns an error that says so.
func TestSendWaits(t *testing.T) {
	e := open(t)
	s := e.listen(t, client.SinkConfig{Flow: "test", Senders: 1})
	a := e.append(t, s, client.AppendConfig{Depth: 4, Message: 100})
	for n := range uint64(4) {
		_, err := a.Send(within(t), message(n+1, 100))
		testenv.Must(t, err)
	}
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := a.Send(short, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a fifth message without an acknowledgement: %v", err)
	}
	if r, err := a.Wait(short, 1); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("message 1 is acknowledged, though nobody took it: %+v, %v", r, err)
	}
	for range 2 {
		_, err := s.Receive(within(t))
		testenv.Must(t, err)
	}
	if r, err := a.Wait(within(t), 1); err != nil || r.Number != 1 {
		t.Errorf("message 1, when message 2 was taken: %+v, %v", r, err)
	}
	if n, err := a.Send(within(t), message(5, 100)); n != 5 || err != nil {
		t.Errorf("the fifth message is %d: %v", n, err)
	}
	if _, err := a.Send(within(t), make([]byte, 101)); err == nil || !strings.Contains(err.Error(), "raise AppendConfig.Message") {
		t.Errorf("a message that is too long: %v", err)
	}
	for n := uint64(3); n <= 5; n++ {
		m, err := s.Receive(within(t))
		if err != nil || m.Sequence != n {
			t.Fatalf("behind message %d comes %d: %v", n-1, m.Sequence, err)
		}
	}
	testenv.Must(t, a.Close())
	for range 8 { // there are free frames, and the appender is closed
		if _, err := a.Send(within(t), nil); err == nil || !strings.Contains(err.Error(), "closed") {
			t.Errorf("a message behind the end: %v", err)
		}
	}
	testenv.Must(t, s.Close())
	if _, err := s.Receive(within(t)); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("a message of a sink that is closed: %v", err)
	}
}

// TestSinkComesBack: messages that a closed sink did not acknowledge arrive at the next sink at its
// address.
func TestSinkComesBack(t *testing.T) {
	e := open(t)
	s := e.listen(t, client.SinkConfig{Flow: "test", Senders: 1})
	a := e.append(t, s, client.AppendConfig{Depth: 8, Message: 100})
	for n := range uint64(8) {
		_, err := a.Send(within(t), message(n+1, 100))
		testenv.Must(t, err)
	}
	for range 3 {
		_, err := s.Receive(within(t))
		testenv.Must(t, err)
	}
	at := s.Addr().String()
	testenv.Must(t, s.Close())
	if r, err := a.Wait(within(t), 3); err != nil || r.Number != 3 {
		t.Errorf("the last message that was taken: %+v, %v", r, err)
	}
	s = e.listen(t, client.SinkConfig{Listen: at, Flow: "test", Senders: 1})
	for n := uint64(4); n <= 8; n++ {
		m, err := s.Receive(within(t))
		testenv.Must(t, err)
		if !bytes.Equal(m.Payload, message(n, 100)) {
			t.Fatalf("behind message %d comes another than %d", n-1, n)
		}
	}
	testenv.Must(t, s.Close())
	_, err := a.Wait(within(t), 8)
	testenv.Must(t, err)
	if n := a.Stats().Failures; n == 0 {
		t.Error("the appender has not noticed that the sink was gone")
	}
}

// feeder provides a number of messages, and records acknowledgements.
type feeder struct {
	given, most uint64
	ahead       uint64 // maximum of unacknowledged messages; written by the client's thread
	known       atomic.Uint64
}

func (f *feeder) Next(b []byte) (int, bool) {
	if f.given == f.most {
		return 0, false
	}
	f.given++
	f.ahead = max(f.ahead, f.given-f.known.Load())
	return copy(b, message(f.given, 100)), true
}

func (f *feeder) Acknowledged(r client.Receipt) {
	if r.Number <= f.known.Load() || r.Number > f.given {
		f.most = 0 // stop feeding, so the test fails
	}
	f.known.Store(r.Number)
}

// TestFeeder: a feeder's messages arrive like sent ones, and Send refuses any others.
func TestFeeder(t *testing.T) {
	e := open(t)
	s := e.listen(t, client.SinkConfig{Flow: "test", Senders: 1})
	f := &feeder{most: 100}
	a := e.append(t, s, client.AppendConfig{Depth: 8, Message: 100, Feed: f})
	for n := range f.most {
		m, err := s.Receive(within(t))
		testenv.Must(t, err)
		if !bytes.Equal(m.Payload, message(n+1, 100)) {
			t.Fatalf("message %d is another", n+1)
		}
	}
	if _, err := a.Send(within(t), nil); err == nil || !strings.Contains(err.Error(), "Feeder") {
		t.Errorf("a message that is not the feeder's: %v", err)
	}
	testenv.Must(t, s.Close())
	testenv.Wait(t, 10*time.Second, "all to be acknowledged", func() bool { return f.known.Load() == 100 })
	testenv.Must(t, a.Close())
	if f.ahead != 8 {
		t.Errorf("%d messages were given ahead of acknowledgements, with a Depth of 8", f.ahead)
	}
}

// TestRefused: the client refuses an impossible request with an error that names the remedy, and
// keeps no resources.
func TestRefused(t *testing.T) {
	e := open(t)
	s := e.listen(t, client.SinkConfig{Flow: "test", Senders: 1})
	at := s.Addr().String()
	for _, c := range []struct {
		name, want string
		try        func(context.Context) error
	}{
		{"device", `no-such`, func(context.Context) error {
			_, err := client.Open(client.Config{Device: "roce:no-such", Memory: 16 << 20, Pages: umem.Ordinary, Queue: 256})
			return err
		}},
		{"frames", "make Config.Memory larger", func(ctx context.Context) error {
			_, err := e.near.Append(ctx, client.AppendConfig{Address: at, Depth: 5000})
			return err
		}},
		{"extents", "make Config.Extents larger", func(ctx context.Context) error {
			_, err := e.near.Append(ctx, client.AppendConfig{Address: at, Message: 5000, Depth: 17})
			return err
		}},
		{"address in use", "address already in use", func(ctx context.Context) error {
			_, err := e.far.Listen(ctx, client.SinkConfig{Listen: at, Senders: 1, AllowAnyGID: true})
			return err
		}},
		{"another flow", `flow "other" is not served here, but "test"`, func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, testenv.Within(time.Second))
			defer cancel()
			_, err := e.near.Append(ctx, client.AppendConfig{Address: at, Flow: "other"})
			return err
		}},
		{"blocks of what is a sink", protocol.NotPermitted.Error(), func(ctx context.Context) error {
			_, err := e.near.Blocks(ctx, client.BlocksConfig{Address: at})
			return err
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := c.try(within(t)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want it to say %q", err, c.want)
			}
		})
	}
	a := e.append(t, s, client.AppendConfig{Message: 100})
	_, err := a.Send(within(t), message(1, 100))
	testenv.Must(t, err)
	m, err := s.Receive(within(t))
	if err != nil || !bytes.Equal(m.Payload, message(1, 100)) {
		t.Errorf("after all that a message is %v: %v", m, err)
	}
}
