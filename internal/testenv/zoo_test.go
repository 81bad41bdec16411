package testenv

import (
	"bytes"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// TestZooTravels: every specimen arrives unchanged at the other end of a link.
func TestZooTravels(t *testing.T) {
	for _, mtu := range []int{1500, 9000} {
		p := NewPair(t, PairOptions{MTU: mtu, NoAddresses: true})
		fd := p.B.listen(t)
		zoo := Zoo(&p.A, &p.B, mtu)
		if n := SendRaw(t, &p.A, Frames(zoo), SendOptions{}); n != len(zoo) {
			t.Fatalf("MTU %d: the interface took %d of %d", mtu, n, len(zoo))
		}
		buf := make([]byte, 16384)
		for _, s := range zoo {
			if seen(s.Frame) == nil {
				continue
			}
			n, err := unix.Read(fd, buf)
			if err != nil {
				t.Fatalf("%s did not arrive: %v", s.Name, err)
			}
			if want := seen(s.Frame); !bytes.Equal(buf[:n], want) {
				t.Errorf("%s arrived as\n%x, want\n%x", s.Name, buf[:n], want)
			}
		}
	}
}

// seen returns the frame as a packet socket receives it: without the outer tag. It returns nothing
// for a frame with nothing after the tag (net/core/skbuff.c, skb_vlan_untag).
func seen(frame []byte) []byte {
	tagged := bytes.Equal(frame[12:14], []byte{0x81, 0}) || bytes.Equal(frame[12:14], []byte{0x88, 0xa8})
	if !tagged {
		return frame
	}
	if len(frame) == 18 {
		return nil
	}
	return slices.Delete(slices.Clone(frame), 12, 16)
}

func TestZooIsTheSameEachTime(t *testing.T) {
	end := End{MAC: []byte{2, 0, 0, 0, 0, 1}, IP: netip.MustParseAddr("10.0.0.1"), IP6: netip.MustParseAddr("fd00::1")}
	names := make(map[string]bool)
	again := Zoo(&end, &end, 9000)
	for i, s := range Zoo(&end, &end, 9000) {
		if names[s.Name] {
			t.Errorf("two specimens are called %s", s.Name)
		}
		names[s.Name] = true
		if !bytes.Equal(s.Frame, again[i].Frame) {
			t.Errorf("%s differs the second time", s.Name)
		}
	}
}
