package main

import (
	"errors"
	"slices"

	"github.com/unifiedd/unifiedd/bpf"
	"github.com/unifiedd/unifiedd/xdp"
)

// generic is the place of the program with -generic.
const generic = bpf.Generic

// mode is one of the program's modes.
type mode string

const (
	selfTest mode = ""
	rx       mode = "rx"
	tx       mode = "tx"
	echo     mode = "echo"
	ping     mode = "ping"
)

// choose returns the mode that the command line selects.
func choose(asked map[mode]*bool) (mode, error) {
	chosen := selfTest
	for _, m := range []mode{rx, tx, echo, ping} {
		if !*asked[m] {
			continue
		}
		if chosen != selfTest {
			return "", errors.New("-" + string(chosen) + " and -" + string(m) + " are different modes: give one")
		}
		chosen = m
	}
	return chosen, nil
}

// direction returns the rings that the mode needs.
func (m mode) direction() xdp.Direction {
	switch m {
	case rx:
		return xdp.Receive
	case tx:
		return xdp.Send
	}
	return xdp.Both
}

// ownPackets reports whether the mode takes only packets of this program.
func (m mode) ownPackets() bool { return m == selfTest || m == ping }

func (m mode) in(modes []mode) bool { return slices.Contains(modes, m) }

// with returns the mode for a sentence about an option.
func (m mode) with() string {
	if m == selfTest {
		return "without a mode: then the self-test runs"
	}
	return "with -" + string(m)
}

// doing describes the mode on an interface.
func (m mode) doing() string {
	switch m {
	case rx:
		return "receiving on"
	case tx:
		return "sending on"
	case echo:
		return "echoing on"
	}
	return "pinging from"
}
