package afxdp

import (
	"fmt"

	"github.com/unifiedd/unifiedd/xdp"
)

// clocks returns the number of clocks that may stamp the packets of an interface.
func clocks(g xdp.Granted) uint32 {
	if g.CardClock {
		return 2
	}
	return 1
}

// cardClock describes a card's clock for the head of a capture.
func cardClock(name string, g xdp.Granted) string {
	which := "its driver does not say which"
	if g.PTPClock >= 0 {
		which = fmt.Sprintf("/dev/ptp%d", g.PTPClock)
	}
	return fmt.Sprintf("Times are of the clock of %s (%s) as it was, not converted: what they count from depends on who set it, often TAI, ahead of UTC by leap seconds. "+
		"Packets that the card has no time for are in the interface before, with times of the system's clock.", name, which)
}
