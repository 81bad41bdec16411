package main

import (
	"errors"
	"slices"

	"github.com/unifiedd/unifiedd/bpf"
	"github.com/unifiedd/unifiedd/xdp"
)

// generic is where -generic has the program run.
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

// choose returns the one mode of the command line.
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

// direction is which rings the mode needs.
func (m mode) direction() xdp.Direction {
	switch m {
	case rx:
		return xdp.Receive
	case tx:
		return xdp.Send
	}
	return xdp.Both
}

// ownPackets reports whether only packets this program sent are wanted.
func (m mode) ownPackets() bool { return m == selfTest || m == ping }

func (m mode) in(modes []mode) bool { return slices.Contains(modes, m) }

// with names the mode in a sentence about an option.
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
