package afxdp

import (
	"errors"
	"fmt"
	"log/slog"
	"net"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/internal/hostroute"
)

// ErrTakeOver is matched when a flow would take all packets from the interface of the default
// route.
var ErrTakeOver = errors.New("the host would be cut off")

// checkTakeOver refuses a flow that receives everything from the interface of the default route,
// unless the configuration permits it.
func checkTakeOver(c config.From) error {
	if !c.TakesAll() || c.TakeOver || c.Mirror != "" {
		return nil
	}
	for _, name := range c.All() {
		carries, err := hostroute.Default(name)
		if err != nil {
			return err
		}
		if carries {
			return fmt.Errorf("%w: %s carries the default route, and what a flow takes the host no longer sees (give a filter; or mirror: both, to have copies; or take_over: true)", ErrTakeOver, name)
		}
	}
	return nil
}

// warnLoopback says so if a flow is about to receive everything from a loopback interface: then programs of the host do not
// reach each other at 127.0.0.1 and ::1.
func warnLoopback(log *slog.Logger, c config.From) {
	if !c.TakesAll() || c.TakeOver || c.Mirror != "" {
		return
	}
	for _, name := range c.All() {
		if i, err := net.InterfaceByName(name); err == nil && i.Flags&net.FlagLoopback != 0 { // Open reports the error
			log.Warn("programs of this host do not reach each other at 127.0.0.1 and ::1 until the flow ends: it takes all packets of "+name+
				" from the host (give a filter; or engine: packet, to have copies; or take_over: true, if you mean it)", "interface", name)
		}
	}
}
