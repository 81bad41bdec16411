package testenv

import (
	"bytes"
	"net/netip"
	"testing"
)

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
