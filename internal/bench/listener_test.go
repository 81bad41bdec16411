package bench

import (
	"context"
	"net"
	"testing"
	"time"
)

func TestListens(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	tcp := l.Addr().(*net.TCPAddr).Port
	if !Listens("tcp", tcp) {
		t.Error("nobody listens, and there is a listener")
	}
	l.Close()
	u, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	udp := u.LocalAddr().(*net.UDPAddr).Port
	if !Listens("udp", udp) {
		t.Error("nobody waits for UDP, and there is a socket")
	}
	u.Close()
	if Listens("tcp", tcp) || Listens("udp", udp) {
		t.Error("somebody listens, and all is closed")
	}
}

func TestAwaitServer(t *testing.T) {
	never := func() bool { return false }
	if err := AwaitServer(t.Context(), func() bool { return true }, nil); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := AwaitServer(ctx, never, nil); err == nil {
		t.Error("it was never ready")
	}
	ended := make(chan error, 1)
	ended <- context.Canceled
	if err := AwaitServer(t.Context(), never, ended); err == nil || <-ended != nil {
		t.Error("the server has ended")
	}
}
