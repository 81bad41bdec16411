package stream

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma/connect"
	"github.com/unifiedd/unifiedd/umem"
)

// source is a flow that sends messages with the tokens 1, 2, 3 and so on, and with payloads that
// sinks expect.
type source struct {
	*loop
	s      *Sender
	cancel context.CancelFunc
	ran    chan error

	// The thread's:
	frames []umem.Frame            // free ones
	under  map[uint64][]umem.Frame // by token
	want   uint64                  // send the tokens up to this one
	sent   uint64
	acked  uint64 // the last token that was acknowledged
	gone   uint64 // number of abandoned messages
	wrong  string
	buf    [8]Result
	room   []byte
}

// senderConfig returns the configuration of most tests, with a sink's address.
func senderConfig(address string) SenderConfig {
	return SenderConfig{Name: "test", Address: address, Flow: "log", Message: 1024, Depth: 64, Events: true}
}

// newSource opens a sender and runs it.
func (s *side) newSource(c SenderConfig) *source {
	s.Helper()
	k := &source{loop: s.newLoop("source"), ran: make(chan error, 1), under: map[uint64][]umem.Frame{}, room: make([]byte, c.Message)}
	c.Endpoint, c.Worker = s.at, k.hands
	k.on(func() {
		var err error
		k.s, err = OpenSender(c)
		testenv.Check(s, err)
	})
	if k.s == nil {
		s.FailNow()
	}
	s.Cleanup(k.close)
	k.frames = k.take(3 * c.slots())
	k.each(k.round)
	ctx, cancel := context.WithCancel(context.Background())
	k.cancel = cancel
	k.s.spawn = func(f func()) { go k.ns.Do(k, f) }
	go k.ns.Do(k, func() { k.ran <- k.s.Run(ctx, k.do) })
	return k
}

// endRun ends the sender's connection.
func (k *source) endRun() {
	k.Helper()
	k.cancel()
	select {
	case err := <-k.ran:
		k.ran <- nil
		k.must(err)
	case <-time.After(testenv.Within(20 * time.Second)):
		k.Fatal("Run does not return")
	}
}

func (k *source) close() {
	k.Helper()
	k.endRun()
	k.on(func() {
		k.rounds = nil
		testenv.Check(k, k.s.Close())
		for _, fs := range k.under {
			k.hands.Give(fs)
		}
		k.hands.Give(k.frames)
		if k.wrong != "" {
			k.Error(k.wrong)
		}
	})
}

func (k *source) round() bool {
	before := k.sent + k.acked + k.gone
	for k.sent < k.want && len(k.frames) >= 3 && k.s.Room() {
		k.sent++
		k.send(k.sent)
	}
	if err := k.s.Poll(time.Now()); err != nil {
		k.wrong = err.Error()
	}
	for n := k.s.Done(k.buf[:]); n > 0; n = k.s.Done(k.buf[:]) {
		for _, r := range k.buf[:n] {
			k.done(r)
		}
	}
	return k.sent+k.acked+k.gone > before
}

// send sends a message in up to three frames, some of them empty.
func (k *source) send(token uint64) {
	length := int(token*37) % (len(k.room) - protocol.HeaderLen + 1)
	text := payload(token, length)
	message := append([]umem.Frame(nil), k.frames[len(k.frames)-3:]...)
	k.frames = k.frames[:len(k.frames)-3]
	for i, rest := range message {
		n := len(text)
		if i < 2 {
			n = rand.IntN(len(text) + 1)
		}
		start, _ := k.region.Start(rest)
		message[i] = umem.Frame{Addr: start + uint64(rand.IntN(512)), Len: uint32(n)}
		copy(k.region.Bytes(message[i]), text)
		text = text[n:]
	}
	k.under[token] = message
	if !k.s.Send(message, uint32(length), protocol.Checksum(payload(token, length)), firstStamp+token, token) {
		k.wrong = "a message is not taken though there is room"
	}
}

func (k *source) done(r Result) {
	k.frames = append(k.frames, k.under[r.Token]...)
	delete(k.under, r.Token)
	if !r.Acknowledged {
		k.gone++
		return
	}
	if r.Token <= k.acked {
		k.wrong = "acknowledged out of order"
	}
	k.acked = r.Token
}

// more makes the source send n more messages.
func (k *source) more(n uint64) { k.on(func() { k.want += n }) }

// await waits until all messages have a result.
func (k *source) await() {
	k.Helper()
	defer func() {
		if k.Failed() {
			k.Logf("%+v", k.s.Stats())
		}
	}()
	testenv.Wait(k, 30*time.Second, "all messages to be done with", func() (all bool) {
		k.on(func() { all = k.sent == k.want && len(k.under) == 0 || k.wrong != "" })
		return all
	})
	if k.wrong != "" {
		k.Fatal(k.wrong)
	}
}

// stats waits until so accepts the statistics.
func (k *source) stats(what string, so func(SenderStats) bool) SenderStats {
	k.Helper()
	var s SenderStats
	defer func() {
		if k.Failed() {
			k.Logf("waiting for %s: %+v", what, s)
		}
	}()
	testenv.Wait(k, 30*time.Second, what, func() bool { s = k.s.Stats(); return so(s) })
	return s
}

func connectedNow(s SenderStats) bool { return s.State == SenderConnected }

// taker is a sink for messages of sources, whose stamps contain their tokens.
type taker struct {
	*sink
	tokens []uint64 // of received messages; used by the thread
}

const firstStamp = 1e18

// newTaker opens a receiver with a number of frames.
func (s *side) newTaker(c ReceiverConfig, frames int) *taker {
	s.Helper()
	k := &taker{sink: s.newSink(c, frames)}
	k.on(func() { k.looks = k.look })
	return k
}

// look checks a message. Each must arrive once and after the earlier ones.
func (k *taker) look(f umem.Frame) {
	b, session := k.region.Bytes(f), k.region.Side(f).Queue
	d, reason := protocol.ParseData(b)
	token := d.Stamp - firstStamp
	switch {
	case reason != protocol.None:
		k.wrong = reason.Error()
	case len(k.tokens) > 0 && token <= k.tokens[len(k.tokens)-1]:
		k.wrong = "a message twice, or out of turn"
	case !bytes.Equal(b[protocol.HeaderLen:], payload(token, int(d.Length))):
		k.wrong = "a message with another payload"
	}
	k.tokens = append(k.tokens, token)
	if !k.silent {
		k.r.Acknowledge(session, d.Sequence, 1000+d.Sequence)
	}
}

// whole checks that all messages from one token on arrived.
func (k *taker) whole(from uint64) {
	k.Helper()
	k.on(func() {
		for i, token := range k.tokens {
			if token != from+uint64(i) {
				k.Errorf("message %d came where %d should", token, from+uint64(i))
				return
			}
		}
	})
}

// serveAt makes the receiver serve again, at an address.
func (k *taker) serveAt(address string) {
	k.Helper()
	var l *connect.Listener
	k.ns.Do(k, func() {
		testenv.Wait(k, 10*time.Second, address+" to be free", func() (free bool) {
			var err error
			l, err = connect.Listen(context.Background(), address, connect.Config{})
			return err == nil
		})
	})
	ctx, cancel := context.WithCancel(context.Background())
	k.cancel = cancel
	<-k.served // the result that endServe left there
	go func() { k.served <- errors.Join(k.r.Serve(ctx, l, k.do), l.Close()) }()
}
