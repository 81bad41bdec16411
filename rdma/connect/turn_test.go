package connect

import (
	"io"
	"net"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma"
)

// TestOutOfTurn: a message that is repeated, late or from the wrong side ends its connection. The
// listener counts the connection as connected only if the handshake was complete.
func TestOutOfTurn(t *testing.T) {
	ours, theirs := pair(rdma.RC)
	offer := AppendOffer(nil, &Offer{Parameters: theirs})
	for _, c := range []struct {
		then []kind // the kinds that the client sends after its offer
		says string
		late bool // the handshake is complete before
	}{
		{[]kind{kindOffer}, "offer instead of ready", false},
		{[]kind{kindAnswer}, "answer instead of ready", false},
		{[]kind{kindText}, "text instead of ready", false},
		{[]kind{kindBye}, "bye instead of ready", false},
		{[]kind{kindReady, kindReady}, "ready after the handshake", true},
		{[]kind{kindReady, kindOffer}, "offer after the handshake", true},
		{[]kind{kindReady, kindAnswer}, "answer after the handshake", true},
	} {
		l := listen(t, Config{})
		server := serve(t, l, end(new(journal), "server", ours))
		s := raw(t, l)
		s.say(t, kindOffer, offer)
		if _, err := s.expect(kindAnswer); err != nil {
			t.Fatal(err)
		}
		for _, k := range c.then {
			s.say(t, k, map[kind][]byte{kindOffer: offer, kindAnswer: offer}[k])
		}
		got := <-server
		err := got.err
		if c.late && err == nil {
			_, err = got.conn.Receive()
			_ = got.conn.Close()
		}
		wantReason(t, err, ReasonFormat, c.says)
		if n := l.Connected(); (n == 1) != c.late {
			t.Errorf("%s: %d were connected", c.says, n)
		}
	}
}

func (s *session) say(t *testing.T, k kind, body []byte) {
	t.Helper()
	testenv.Must(t, writeMessage(s.conn, k, body))
}

// TestServerOutOfTurn: a server's message out of turn also ends the connection. Only one answer
// changes the client's queue pair.
func TestServerOutOfTurn(t *testing.T) {
	ours, theirs := pair(rdma.RC)
	answer := AppendOffer(nil, &Offer{Parameters: ours})
	for _, c := range []struct {
		first kind
		says  string
	}{{kindReady, "ready instead of answer"}, {kindOffer, "offer instead of answer"}, {kindBye, "bye instead of answer"}, {kindAnswer, "answer after the handshake"}} {
		log := new(journal)
		address := speaks(t, []kind{c.first, kindAnswer}, answer)
		conn, err := Dial(t.Context(), address, end(log, "client", theirs), Config{})
		steps := len(log.lines)
		if c.first == kindAnswer && err == nil {
			_, err = conn.Receive()
			_ = conn.Close()
			steps -= 2 // for RTR and RTS
		}
		wantReason(t, err, ReasonFormat, c.says)
		if steps != 0 {
			t.Errorf("%s: %q", c.says, log.lines)
		}
	}
}

// speaks runs a server that accepts one connection and sends messages of the given kinds, whatever
// the client sends.
func speaks(t *testing.T, kinds []kind, body []byte) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testenv.Must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		for _, k := range kinds {
			if limits[k] == 0 {
				_ = writeMessage(conn, k, nil)
			} else {
				_ = writeMessage(conn, k, body)
			}
		}
		_, _ = io.Copy(io.Discard, conn)
	}()
	return l.Addr().String()
}
