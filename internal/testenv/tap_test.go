package testenv

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// TestTap: packets written to the file arrive at the interface, and the kernel answers for its
// address. The interface's packets come out of the file unchanged.
func TestTap(t *testing.T) {
	Leaks(t)
	tap := NewTap(t, PairOptions{MTU: 4200})
	if _, err := tap.File.Write(arpRequest(tap)); err != nil {
		t.Fatal(err)
	}
	want := append(append(bytes.Clone(other), tap.MAC...), 0x08, 0x06)
	packet := make([]byte, 1<<16)
	for {
		n, err := tap.File.Read(packet)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Equal(packet[:min(n, 14)], want) { // an answer to other
			break
		}
	}
	if mtu := tap.link(t).Attrs().MTU; mtu != 4200 {
		t.Errorf("the MTU is %d", mtu)
	}
}

// other is the MAC address of the other end.
var other = []byte{2, 0x77, 0, 0, 0, 9}

// arpRequest asks for the interface's hardware address (RFC 826).
func arpRequest(tap *Tap) []byte {
	p := append(bytes.Repeat([]byte{0xff}, 6), other...)
	for _, word := range []uint16{0x0806, 1, 0x0800, 0x0604, 1} {
		p = binary.BigEndian.AppendUint16(p, word)
	}
	p = append(append(p, other...), tap.PeerIP.AsSlice()...)
	return append(append(p, make([]byte, 6)...), tap.IP.AsSlice()...)
}
