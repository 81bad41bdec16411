package pingpong

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/connect"
	"github.com/unifiedd/unifiedd/rdma/connect/internal/transcript"
)

var recorded = map[string]rdma.Transport{"rc": rdma.RC, "rc_g0": rdma.RC, "uc": rdma.UC, "ud": rdma.UD}

func read2(t *testing.T, name string) (all transcript.Transcript, client, server Destination) {
	t.Helper()
	all, err := transcript.Read("testdata/" + name + ".txt")
	testenv.Must(t, err)
	client, err1 := Decode(all.By(transcript.Client)[0])
	server, err2 := Decode(all.By(transcript.Server)[0])
	testenv.Must(t, errors.Join(err1, err2))
	return all, client, server
}

func tcpPair(t *testing.T) (client, server net.Conn) {
	t.Helper()
	client, server, err := transcript.Pair()
	testenv.Must(t, err)
	t.Cleanup(func() { _, _ = client.Close(), server.Close() })
	return client, server
}

// play plays the recorded program on one end of a connection.
func play(all transcript.Transcript, conn net.Conn, as transcript.Side) <-chan error {
	done := make(chan error, 1)
	go func() { done <- all.Play(conn, as) }()
	return done
}

// TestAgainstRecordedPrograms: in either role, our side sends the same bytes in the same order as
// the recorded programs, and decodes theirs correctly.
func TestAgainstRecordedPrograms(t *testing.T) {
	for name, transport := range recorded {
		all, c, s := read2(t, name)
		client, server := c.Parameters(transport, MTU), s.Parameters(transport, MTU)
		for _, as := range []transcript.Side{transcript.Client, transcript.Server} {
			a, b := tcpPair(t)
			theirs, ours, local, want, role := a, b, server, client, Server
			if as == transcript.Server {
				theirs, ours, local, want, role = b, a, client, server, Client
			}
			played := play(all, theirs, as)
			var led connect.Parameters
			remote, err := role(t.Context(), ours, local, func(p connect.Parameters) error { led = p; return nil })
			if err := errors.Join(err, ours.Close(), <-played); err != nil {
				t.Errorf("%s, they the %s: %v", name, as, err)
			}
			if remote != want || led != want {
				t.Errorf("%s: heard of %+v, led to %+v, want %+v", name, remote, led, want)
			}
		}
	}
}

// TestServerLeadsFirst: the server's queue pair is in RTS before the server sends its destination.
// If that fails, the client gets no destination.
func TestServerLeadsFirst(t *testing.T) {
	_, c, s := read2(t, "rc")
	a, b := tcpPair(t)
	broken := errors.New("no route")
	if _, err := a.Write(c.Encode()); err != nil {
		t.Fatal(err)
	}
	_, err := Server(t.Context(), b, s.Parameters(rdma.RC, MTU), func(connect.Parameters) error {
		_ = a.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		if n, err := a.Read(make([]byte, 1)); n > 0 || err == nil {
			t.Error("the address was sent before the queue pair was led")
		}
		return broken
	})
	if !errors.Is(err, broken) {
		t.Error(err)
	}
}

func TestRefused(t *testing.T) {
	good := "0000:000012:456c8f:00000000000000000000ffff0a630001\x00"
	for _, c := range []struct{ send, says string }{
		{strings.ToUpper(good), "is not what a pingpong says"},
		{strings.Replace(good, ":", " ", 1), "is not what a pingpong says"},
		{strings.Replace(good, "0000", "+000", 1), "is not what a pingpong says"},
		{strings.Replace(good, "456c8f", "0x6c8f", 1), "is not what a pingpong says"},
		{good[:51] + "\n", "is not what a pingpong says"},
		{strings.Repeat("\x00", Bytes), "is not what a pingpong says"},
		{strings.Replace(good, "000012", "000001", 1), "queue pair number 0x1"},
		{"0000:000012:456c8f:" + strings.Repeat("0", 32) + "\x00", "neither a GID nor a LID"},
		{good + "over\x00", `ends with "over\x00"`},
		{good[:20], "read the client's address: unexpected EOF"},
		{good, "wait for the client to be done: EOF"},
	} {
		a, b := tcpPair(t)
		_, err := a.Write([]byte(c.send))
		testenv.Must(t, errors.Join(err, a.(*net.TCPConn).CloseWrite()))
		s := connect.Parameters{Transport: rdma.RC, QPN: 17, MTU: MTU}
		if _, err := Server(t.Context(), b, s, func(connect.Parameters) error { return nil }); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q: %v, want %q", c.send, err, c.says)
		}
	}
}

func TestTimes(t *testing.T) {
	a, _ := tcpPair(t)
	local := connect.Parameters{Transport: rdma.RC, QPN: 17, MTU: MTU}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := Client(ctx, a, local, nil); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "nothing came in time") {
		t.Errorf("a silent server: %v", err)
	}
	_, b := tcpPair(t)
	ctx, cancel = context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	if _, err := Server(ctx, b, local, func(connect.Parameters) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("a silent client: %v", err)
	}
}

// TestSettings: the settings are those in the programs' sources.
func TestSettings(t *testing.T) {
	s := Settings()
	if s.Timeout != 14 || s.Retries != 7 || s.RNRRetries != 7 || s.MinRNRTimer != 12 || s.MTU.Bytes() != 1024 || s.MaxReads != 1 || s.QKey != 0x11111111 || s.Access != 0 {
		t.Errorf("%+v", s)
	}
}

// FuzzDecode: Decode accepts only the one text that Encode makes for a destination.
func FuzzDecode(f *testing.F) {
	f.Add([]byte("0000:000012:456c8f:00000000000000000000ffff0a630001\x00"))
	f.Add([]byte("000g:000012:456c8f:00000000000000000000ffff0a630001\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := Decode(b)
		if err == nil && !bytes.Equal(d.Encode(), b) {
			t.Errorf("%q became %+v", b, d)
		}
	})
}
