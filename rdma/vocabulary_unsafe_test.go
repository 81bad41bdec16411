package rdma

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"unsafe"
)

// TestLayouts: types that the provider passes to C unchanged have the sizes of their C types.
func TestLayouts(t *testing.T) {
	if n := unsafe.Sizeof(WorkCompletion{}); n != 48 {
		t.Errorf("struct ibv_wc has 48 bytes, WorkCompletion %d", n)
	}
	if n := unsafe.Sizeof(SGE{}); n != 16 {
		t.Errorf("struct ibv_sge has 16 bytes, SGE %d", n)
	}
}

func TestCheckChange(t *testing.T) {
	toReceive := MaskState | MaskAddress | MaskPathMTU | MaskRemoteQPN | MaskReceivePSN
	for _, c := range []struct {
		name     string
		of       Transport
		from, to State
		given    Mask
		state    bool   // the error is ErrState
		says     string // text of the error; empty: no error
	}{
		{"RC to INIT", RC, Reset, Init, MaskState | MaskPKeyIndex | MaskPort | MaskAccess, false, ""},
		{"UD to INIT without a Q_Key", UD, Reset, Init, MaskState | MaskPKeyIndex | MaskPort, false, "QKEY is missing"},
		{"UC to RTR", UC, Init, ReadyToReceive, toReceive, false, ""},
		{"RC to RTR with what UC needs", RC, Init, ReadyToReceive, toReceive, false, "MIN_RNR_TIMER, MAX_DEST_RD_ATOMIC is missing"},
		{"UD to RTR with an address", UD, Init, ReadyToReceive, MaskState | MaskAddress, false, "AV cannot be given"},
		{"past RTR", RC, Init, ReadyToSend, MaskState, true, "it can go from INIT to RESET, INIT, RTR, ERR"},
		{"from ERR", RC, Error, ReadyToSend, MaskState, true, "from ERR to RESET, ERR"},
		{"RC from SQE", RC, SendError, ReadyToSend, MaskState, true, "wrong state"},
		{"UD from SQE", UD, SendError, ReadyToSend, MaskState, false, ""},
		{"any to ERR", UC, SendDrained, Error, MaskState, false, ""},
		{"RESET to ERR", UC, Reset, Error, MaskState, true, "wrong state"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := CheckChange(c.of, c.from, c.to, c.given)
			switch {
			case c.says == "" && err != nil:
				t.Error(err)
			case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)):
				t.Errorf("%v, want %q in it", err, c.says)
			case errors.Is(err, ErrState) != c.state:
				t.Errorf("%v: ErrState is %v", err, !c.state)
			}
		})
	}
}

func TestChooseGID(t *testing.T) {
	entry := func(index int, addr string, kind GIDType) GIDEntry {
		return GIDEntry{GID: GIDOf(netip.MustParseAddr(addr)), Index: index, Type: kind}
	}
	table := []GIDEntry{entry(0, "fe80::1", RoCE1), entry(1, "fe80::1", RoCE2), entry(2, "10.0.0.1", RoCE1), entry(3, "10.0.0.1", RoCE2),
		entry(4, "fd00::1", RoCE2), entry(5, "10.0.0.2", RoCE2)}
	for peer, want := range map[string]int{"": 3, "10.9.9.9": 3, "::ffff:10.9.9.9": 3, "fd00::9": 4, "fe80::9": 1} {
		var a netip.Addr
		if peer != "" {
			a = netip.MustParseAddr(peer)
		}
		if got, err := ChooseGID(table, a); err != nil || got.Index != want {
			t.Errorf("to %q: %v, %v; want index %d", peer, got, err, want)
		}
	}
	if _, err := ChooseGID(table[:3], netip.MustParseAddr("10.9.9.9")); err == nil || !strings.Contains(err.Error(), "IPv4 address") {
		t.Errorf("without a fitting one: %v", err)
	}
	if _, err := ChooseGID(nil, netip.Addr{}); err == nil {
		t.Error("an empty table has a GID")
	}
}

func TestMTU(t *testing.T) {
	for mtu, want := range map[int]MTU{1500: MTU1024, 2200: MTU2048, 4200: MTU4096, 9000: MTU4096, 300: 0} {
		if got := FitsInterface(mtu); got != want {
			t.Errorf("interface of %d: %v, want %v", mtu, got, want)
		}
	}
	if m, err := ParseMTU(2048); err != nil || m != MTU2048 {
		t.Errorf("%v, %v", m, err)
	}
	if _, err := ParseMTU(1500); err == nil {
		t.Error("1500 is no path MTU")
	}
}

func TestOpError(t *testing.T) {
	c := WorkCompletion{Status: RemoteAccess, QPN: 17}
	err := c.Err()
	if !errors.Is(err, RemoteAccess) || errors.Is(err, WorkFlushed) {
		t.Errorf("%v is not the status", err)
	}
	for _, want := range []string{"queue pair 17", "IBV_WC_REM_ACCESS_ERR", "rkey"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q lacks %q", err, want)
		}
	}
	if (&WorkCompletion{}).Err() != nil {
		t.Error("a success is an error")
	}
}

// TestNames: every number that a device may return has a text.
func TestNames(t *testing.T) {
	for s := Success; s < Statuses; s++ {
		if means, _ := s.Meaning(); means == "" || !strings.HasPrefix(s.String(), "IBV_WC_") {
			t.Errorf("status %d: %q, %q", uint32(s), s, means)
		}
	}
	if got := (LocalWrite | RemoteRead).String(); got != "local write, remote read" {
		t.Error(got)
	}
	if !RC.Allows(Read) || UC.Allows(Read) || UD.Allows(Write) || !UC.Allows(WriteImmediate) {
		t.Error("operations of transports")
	}
}
