package afxdp

import (
	"errors"
	"fmt"

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
			return fmt.Errorf("%w: %s carries the default route, and what a flow takes the host no longer sees (give a filter; or mirror: both, --mirror, to have copies; or take_over: true, --take-over)", ErrTakeOver, name)
		}
	}
	return nil
}
