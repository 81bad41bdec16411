package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Pace is how fast the packets of captures are sent. The zero value is as they were recorded.
type Pace struct {
	By    PaceBy
	Value float64 // times as fast, packets or bits a second; 0 with PaceTop and PaceRecorded
}

// PaceBy is what a pace is a number of.
type PaceBy uint8

// The ways to say a pace.
const (
	PaceRecorded PaceBy = iota // as the packets were recorded
	PaceTop                    // as fast as the interface takes them
	PaceTimes                  // so many times as fast as recorded
	PacePackets                // packets a second
	PaceBits                   // bits a second, of Ethernet frames without their checksums
)

// paceUnits are those of a number, the longest first where one ends like another.
var paceUnits = []struct {
	name string
	by   PaceBy
	one  float64
}{
	{"x", PaceTimes, 1}, {"pps", PacePackets, 1},
	{"Gbit/s", PaceBits, 1e9}, {"Mbit/s", PaceBits, 1e6}, {"kbit/s", PaceBits, 1e3}, {"bit/s", PaceBits, 1},
}

// Bounds of paces: a nanosecond between two packets is as short as times tell apart.
const (
	minPace = 1e-6
	maxPace = 1e12
)

// ParsePace reads "recorded", "top", or a number with a unit: 2x, 10000pps, 250Mbit/s.
func ParsePace(s string) (p Pace, err error) {
	switch s {
	case "recorded":
		return Pace{By: PaceRecorded}, nil
	case "top":
		return Pace{By: PaceTop}, nil
	}
	for _, u := range paceUnits {
		digits, is := strings.CutSuffix(s, u.name)
		if !is {
			continue
		}
		v, err := strconv.ParseFloat(digits, 64)
		if err != nil {
			break
		}
		p = Pace{u.by, v * u.one}
		return p, checkPace(p)
	}
	return p, fmt.Errorf("%s is not a pace like recorded, top, 2x, 10000pps or 250Mbit/s", quote(s))
}

// checkPace says what is wrong with a pace.
func checkPace(p Pace) error {
	switch {
	case p.By > PaceBits:
		return fmt.Errorf("%d is no way to say a pace", p.By)
	case p.By <= PaceTop && p.Value == 0:
		return nil
	case math.IsNaN(p.Value) || p.Value < minPace || p.Value > maxPace:
		return fmt.Errorf("a pace of %v is not from %g to %g", p.Value, minPace, float64(maxPace))
	}
	return nil
}

// String is the pace as a configuration has it.
func (p Pace) String() string {
	switch p.By {
	case PaceRecorded:
		return "recorded"
	case PaceTop:
		return "top"
	}
	for _, u := range paceUnits {
		if v := p.Value / u.one; u.by == p.By && (v >= 1 || u.one == 1) {
			return strconv.FormatFloat(v, 'f', -1, 64) + u.name
		}
	}
	return ""
}
