package connect

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma"
)

func pair(t rdma.Transport) (local, remote Parameters) {
	local = Parameters{Transport: t, QPN: 17, PSN: 100, GID: rdma.GIDOf(netip.MustParseAddr("10.0.0.1")), MTU: rdma.MTU4096, MaxReads: 16, MaxRemoteReads: 8, QKey: 1}
	remote = Parameters{Transport: t, QPN: 18, PSN: 200, GID: rdma.GIDOf(netip.MustParseAddr("10.0.0.2")), LID: 3, MTU: rdma.MTU1024, MaxReads: 4, MaxRemoteReads: 2, QKey: 2}
	return local, remote
}

// TestWayIsLegal: each state change gives exactly the attributes that the transport requires.
func TestWayIsLegal(t *testing.T) {
	s := Defaults()
	for _, transport := range []rdma.Transport{rdma.RC, rdma.UC, rdma.UD} {
		local, remote := pair(transport)
		from := rdma.Reset
		step := func(a rdma.Attributes, given rdma.Mask) {
			testenv.Check(t, rdma.CheckChange(transport, from, a.State, given))
			from = a.State
		}
		step(s.toInit(transport, local.QKey))
		step(s.toReceive(local, remote))
		step(s.toSend(local, remote))
		if from != rdma.ReadyToSend {
			t.Errorf("%v ends in %v", transport, from)
		}
	}
}

// TestAttributes: the peer's parameters become the right attributes.
func TestAttributes(t *testing.T) {
	s := Defaults()
	s.GID = rdma.GIDEntry{GID: rdma.GIDOf(netip.MustParseAddr("10.0.0.1")), Index: 3}
	s.Access = rdma.RemoteWrite
	local, remote := pair(rdma.RC)
	init, _ := s.toInit(rdma.RC, 0)
	receive, _ := s.toReceive(local, remote)
	send, _ := s.toSend(local, remote)
	want := []rdma.Attributes{
		{State: rdma.Init, Port: 1, Access: rdma.RemoteWrite},
		{State: rdma.ReadyToReceive, PathMTU: rdma.MTU1024, RemoteQPN: 18, ReceivePSN: 200, MaxRemoteReads: 4, MinRNRTimer: 12,
			Address: rdma.Address{GID: remote.GID, GIDIndex: 3, HopLimit: 64, LID: 3, Port: 1}},
		{State: rdma.ReadyToSend, SendPSN: 100, Timeout: 14, Retries: 6, RNRRetries: 6, MaxReads: 2},
	}
	if diff := cmp.Diff(want, []rdma.Attributes{init, receive, send}); diff != "" {
		t.Error(diff)
	}
	datagrams, _ := s.toInit(rdma.UD, 0x11111111)
	if diff := cmp.Diff(rdma.Attributes{State: rdma.Init, Port: 1, QKey: 0x11111111}, datagrams); diff != "" {
		t.Error(diff)
	}
}

// TestAddressByLID: without a local GID, the address has none.
func TestAddressByLID(t *testing.T) {
	s := Defaults()
	_, remote := pair(rdma.RC)
	if diff := cmp.Diff(rdma.Address{LID: 3, Port: 1}, s.AddressOf(remote)); diff != "" {
		t.Error(diff)
	}
}

func TestReads(t *testing.T) {
	for _, c := range []struct {
		want uint8
		can  int
		got  uint8
	}{{16, 128, 16}, {16, 4, 4}, {255, 1 << 20, 255}, {16, 0, 0}, {16, -1, 0}} {
		if got := reads(c.want, c.can); got != c.got {
			t.Errorf("%d of %d: %d", c.want, c.can, got)
		}
	}
}
