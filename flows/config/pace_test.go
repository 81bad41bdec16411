package config

import "testing"

func TestPaces(t *testing.T) {
	for text, want := range map[string]Pace{
		"recorded": {}, "top": {By: PaceTop}, "2x": {PaceTimes, 2}, "0.25x": {PaceTimes, 0.25}, "10000pps": {PacePackets, 10000},
		"250Mbit/s": {PaceBits, 2.5e8}, "1.5Gbit/s": {PaceBits, 1.5e9}, "12bit/s": {PaceBits, 12}, "64kbit/s": {PaceBits, 64000},
	} {
		got, err := ParsePace(text)
		if err != nil || got != want || got.String() != text {
			t.Errorf("%s is %+v (%s), %v", text, got, got, err)
		}
	}
	for _, text := range []string{"", "x", "fast", "2", "-1x", "0pps", "NaNx", "Infx", "1e13bit/s", "5Mb/s", "top ", "2 x"} {
		if got, err := ParsePace(text); err == nil {
			t.Errorf("%q is %+v", text, got)
		}
	}
}
