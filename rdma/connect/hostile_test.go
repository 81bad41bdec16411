package connect

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma"
)

// TestGarbage: the listener counts each invalid first message by its reason, and sends the peer a
// refusal.
func TestGarbage(t *testing.T) {
	short := AppendOffer(nil, &Offer{})
	for _, c := range []struct {
		send   string
		reason Reason
		told   string // empty: no refusal
	}{
		{"GET / HTTP/1.1\r\nHost: x\r\n\r\n" + strings.Repeat("x", 1000), ReasonFormat, "is not this exchange"},
		{magic + "\x02\x01\x00\x04abcd", ReasonVersion, "speaks version 2"},
		{magic + "\x01\x01\xff\xff", ReasonFormat, "is longer than"},
		{magic + "\x01\x03\x00\x00", ReasonFormat, "ready instead of offer"},
		{magic + "\x01\x01\x00\x00", ReasonFormat, "ends too early"},
		{magic + "\x01\x01\x00" + string([]byte{byte(len(short))}) + string(short), ReasonFormat, "none of RC"},
		{magic + "\x01\x04\x00\x03bye", ReasonRefused, ""},
	} {
		l := listen(t, Config{})
		s := raw(t, l)
		if _, err := io.WriteString(s.conn, c.send); err != nil {
			t.Fatal(err)
		}
		_, err := s.expect(kindAnswer)
		if c.told != "" {
			wantReason(t, &Error{Reason: reasonOf(err), Err: err}, ReasonRefused, c.told)
		}
		waitFor(t, l, c.reason, 1)
	}
}

// TestPeerVanishes: the listener reports a peer that closes the connection, at any point of the
// handshake.
func TestPeerVanishes(t *testing.T) {
	ours, theirs := pair(rdma.RC)
	l := listen(t, Config{})
	_ = raw(t, l).conn.Close()
	waitFor(t, l, ReasonClosed, 1)
	server := serve(t, l, end(new(journal), "server", ours))
	s := raw(t, l)
	testenv.Must(t, writeMessage(s.conn, kindOffer, AppendOffer(nil, &Offer{Parameters: theirs})))
	if _, err := s.expect(kindAnswer); err != nil {
		t.Fatal(err)
	}
	_ = s.conn.Close()
	wantReason(t, (<-server).err, ReasonClosed, "wait until the peer is ready")
	waitFor(t, l, ReasonClosed, 2)
}

// TestSilence: the listener ends a connection that sends nothing, or one byte at a time, when its
// time is over. Other peers do not wait for that.
func TestSilence(t *testing.T) {
	ours, theirs := pair(rdma.RC)
	l := listen(t, Config{})
	begin := time.Now()
	silent, slow := raw(t, l), raw(t, l)
	go func() {
		for range 100 {
			for i := range magic {
				if _, err := slow.conn.Write([]byte{magic[i]}); err != nil {
					return
				}
				time.Sleep(400 * time.Millisecond)
			}
		}
	}()
	for l.Handshakes() < 2 {
		time.Sleep(time.Millisecond)
	}
	server := serve(t, l, end(new(journal), "server", ours))
	c, err := Dial(t.Context(), l.Addr().String(), end(new(journal), "client", theirs), Config{Timeout: 10 * time.Second})
	testenv.Must(t, err)
	if waited := time.Since(begin); waited >= FirstByteTime {
		t.Errorf("a third was dealt with after %v", waited)
	}
	testenv.Check(t, errors.Join((<-server).err, c.Close()))
	waitFor(t, l, ReasonTimeout, 2)
	if took := time.Since(begin); took < FirstByteTime || took > FirstByteTime+OfferTime+testenv.Within(time.Second) {
		t.Errorf("the two were let go after %v", took)
	}
	_ = silent.conn.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := io.ReadAll(silent.conn); err != nil && reasonOf(err) != ReasonClosed {
		t.Errorf("the silent one is still connected: %v", err)
	}
}

// TestUnanswered: a request that the program does not answer ends at the timeout, and its place
// becomes free.
func TestUnanswered(t *testing.T) {
	_, theirs := pair(rdma.RC)
	failed := make(chan error, 2)
	const limit = 500 * time.Millisecond
	l := listen(t, Config{Timeout: limit, Failed: func(err error) { failed <- err }})
	for range 2 { // not accepted, then accepted and not answered
		dialled := make(chan error, 1)
		go func() {
			_, err := Dial(t.Context(), l.Addr().String(), end(new(journal), "client", theirs), Config{})
			dialled <- err
		}()
		err := <-failed
		wantReason(t, err, ReasonTimeout, "wait for this side's program: nothing came in time")
		if ReasonOf(<-dialled) != ReasonClosed {
			t.Error("the client was not let go")
		}
		go func() {
			if r, err := l.Accept(t.Context()); err == nil && r.Peer().Plain {
				time.Sleep(2 * limit)
				if _, err := r.Accept(End{}); !errors.Is(err, errAnswered) {
					t.Error(err)
				}
			}
		}()
	}
}

func TestDialGivesUp(t *testing.T) {
	_, theirs := pair(rdma.RC)
	l, err := net.Listen("tcp", "127.0.0.1:0") // accepts connections and sends nothing
	testenv.Must(t, err)
	defer l.Close()
	_, err = Dial(t.Context(), l.Addr().String(), end(new(journal), "client", theirs), Config{Timeout: 300 * time.Millisecond})
	wantReason(t, err, ReasonTimeout, "read the answer: nothing came in time")
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(300*time.Millisecond, cancel)
	_, err = Dial(ctx, l.Addr().String(), end(new(journal), "client", theirs), Config{})
	wantReason(t, err, ReasonCancelled, "context canceled")
	_ = l.Close()
	_, err = Dial(t.Context(), l.Addr().String(), end(new(journal), "client", theirs), Config{})
	wantReason(t, err, ReasonNetwork, "connection refused")
}

// TestCloseEndsHandshakes: closing a listener ends its handshakes and the calls that wait for them.
func TestCloseEndsHandshakes(t *testing.T) {
	l := listen(t, Config{})
	raw(t, l)
	for l.Handshakes() < 1 {
		time.Sleep(time.Millisecond)
	}
	accepted := make(chan error, 1)
	go func() { _, err := l.Accept(t.Context()); accepted <- err }()
	testenv.Check(t, l.Close())
	if err := <-accepted; !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept after Close: %v", err)
	}
	waitFor(t, l, ReasonCancelled, 1)
}

// TestPeerGone: Receive returns an error, and not io.EOF, if the connection breaks.
func TestPeerGone(t *testing.T) {
	ours, theirs := pair(rdma.RC)
	l := listen(t, Config{})
	server := serve(t, l, end(new(journal), "server", ours))
	client, err := Dial(t.Context(), l.Addr().String(), end(new(journal), "client", theirs), Config{})
	testenv.Must(t, err)
	_ = client.conn.Close()
	c := (<-server).conn
	_, err = c.Receive()
	wantReason(t, err, ReasonClosed, "receive")
	testenv.Check(t, c.Close())
}

// TestKeepAlive: both sides detect a dead machine, whether they send data or not.
func TestKeepAlive(t *testing.T) {
	ours, theirs := pair(rdma.RC)
	l := listen(t, Config{})
	server := serve(t, l, end(new(journal), "server", ours))
	client, err := Dial(t.Context(), l.Addr().String(), end(new(journal), "client", theirs), Config{})
	testenv.Must(t, err)
	for _, c := range []*Conn{client, (<-server).conn} {
		raw, err := c.conn.(*net.TCPConn).SyscallConn()
		testenv.Must(t, err)
		for name, want := range map[int]int{unix.TCP_KEEPIDLE: 5, unix.TCP_KEEPINTVL: 5, unix.TCP_KEEPCNT: 3, unix.TCP_USER_TIMEOUT: 20000} {
			var got int
			err1 := raw.Control(func(fd uintptr) { got, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, name) })
			if err := errors.Join(err, err1); err != nil || got != want {
				t.Errorf("option %d of TCP is %d, %v; want %d", name, got, err, want)
			}
		}
		var on int
		err1 := raw.Control(func(fd uintptr) { on, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_KEEPALIVE) })
		if err := errors.Join(err, err1, c.Close()); err != nil || on != 1 {
			t.Errorf("keep-alive is %d, %v", on, err)
		}
	}
}

// TestThousand: a thousand connections leave nothing behind.
func TestThousand(t *testing.T) {
	ours, theirs := pair(rdma.RC)
	l := listen(t, Config{})
	before := openFiles(t)
	for range 1000 {
		server := serve(t, l, end(new(journal), "server", ours))
		client, err := Dial(t.Context(), l.Addr().String(), end(new(journal), "client", theirs), Config{})
		testenv.Must(t, err)
		got := <-server
		testenv.Must(t, errors.Join(got.err, client.Close(), got.conn.Close()))
	}
	if l.Connected() != 1000 {
		t.Errorf("%d connected", l.Connected())
	}
	if after := openFiles(t); after > before {
		t.Errorf("%d files are open, %d were before", after, before)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	testenv.Must(t, err)
	return len(list)
}

// TestCancel: Cancel ends an Accept that waits for a peer which has left without a word. After Accept it does nothing.
func TestCancel(t *testing.T) {
	ours, theirs := pair(rdma.RC)
	l := listen(t, Config{Timeout: time.Minute})
	s := raw(t, l)
	testenv.Must(t, writeMessage(s.conn, kindOffer, AppendOffer(nil, &Offer{Parameters: theirs})))
	r, err := l.Accept(t.Context())
	testenv.Must(t, err)
	failed := make(chan error, 1)
	go func() {
		_, err := r.Accept(end(new(journal), "server", ours))
		failed <- err
	}()
	if _, err := s.expect(kindAnswer); err != nil { // Accept waits now
		t.Fatal(err)
	}
	r.Cancel()
	wantReason(t, <-failed, ReasonCancelled, "wait until the peer is ready")
	waitFor(t, l, ReasonCancelled, 1)
	dialled := make(chan *Conn, 1)
	go func() {
		c, err := Dial(t.Context(), l.Addr().String(), end(new(journal), "client", theirs), Config{})
		testenv.Check(t, err)
		dialled <- c
	}()
	r, err = l.Accept(t.Context())
	testenv.Must(t, err)
	c, err := r.Accept(end(new(journal), "server", ours))
	testenv.Must(t, err)
	r.Cancel()
	d := <-dialled
	testenv.Check(t, d.Send([]byte("still here")))
	if text, err := c.Receive(); err != nil || string(text) != "still here" {
		t.Errorf("got %q: %v", text, err)
	}
	testenv.Check(t, errors.Join(c.Close(), d.Close()))
}
