package main

import (
	"errors"
	"fmt"

	"github.com/unifiedd/unifiedd/internal/hostroute"
)

// errTakeOver means that the host would lose its network.
var errTakeOver = errors.New("the host would be cut off")

// checkTakeOver refuses to take all packets from the interface that carries the default route.
func checkTakeOver(o options) error {
	if o.mode == tx || o.filter != "" || o.takeOver {
		return nil
	}
	carries, err := hostroute.Default(o.iface)
	if err == nil && carries {
		err = fmt.Errorf("%w: %s carries the default route, and what is taken the host no longer sees (give a -filter, or -take-over)", errTakeOver, o.iface)
	}
	return err
}
