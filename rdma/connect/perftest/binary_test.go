package perftest

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma"
)

// TestBinary: a key of option -R has the layout of the programs.
func TestBinary(t *testing.T) {
	gid, err := rdma.ParseGID("10.79.0.1")
	testenv.Must(t, err)
	k := Key{LID: 1, Reads: 2, QPN: 0x11, PSN: 0xabcdef, RKey: 0x12345678, Addr: 0x7f0012345678, GID: gid, SRQN: 3}
	want := "00000001" + "00000002" + "00000011" + "00abcdef" + "12345678" + "00000000" + "00007f0012345678" +
		"00000000000000000000ffff0a4f0001" + "00000003" + "00000000"
	b := k.Binary()
	if got := hex.EncodeToString(b); got != want {
		t.Errorf("%s, not %s", got, want)
	}
	if back := KeyOfBinary(b); back != k {
		t.Errorf("%+v, not %+v", back, k)
	}
	if short := KeyOfBinary(b[:55]); short != (Key{}) {
		t.Errorf("%+v of 55 bytes", short)
	}
	hostile := KeyOfBinary([]byte(strings.Repeat("\xff", BinaryBytes)))
	if _, err := hostile.Parameters(rdma.RC, rdma.MTU1024, k); err == nil {
		t.Error("a queue pair number of 32 bits is taken")
	}
}

// TestMeet: with -R both sides connect between two turns, and keys are binary.
func TestMeet(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	key := Key{QPN: 17, PSN: 1, GID: rdma.GID{15: 1}}
	failed, order := make(chan error, 1), make(chan string, 2)
	converse := func(conn net.Conn, r Role) error {
		s, err := Begin(t.Context(), conn, Config{Test: WriteBandwidth, Role: r, MTU: rdma.MTU1024, Manager: true})
		if err != nil {
			return err
		}
		if err := s.Meet(t.Context(), func() error { order <- "connect"; return nil }); err != nil {
			return err
		}
		keys, err := s.Exchange(t.Context(), []Key{key}, func([]Key) error { return nil })
		if err == nil && keys[0] != key {
			err = fmt.Errorf("the peer's key is %+v", keys[0])
		}
		if err != nil {
			return err
		}
		_, err = s.Finish(t.Context(), Report{})
		return err
	}
	go func() { failed <- converse(a, Server) }()
	if err := errors.Join(converse(b, Client), <-failed); err != nil || len(order) != 2 {
		t.Errorf("%d sides connect: %v", len(order), err)
	}
}
