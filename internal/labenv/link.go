package labenv

import (
	"testing"

	"github.com/vishvananda/netlink"
)

// SetLink sets a card of the guest up or down.
func SetLink(t testing.TB, card string, up bool) {
	t.Helper()
	link, err := netlink.LinkByName(card)
	if err == nil && up {
		err = netlink.LinkSetUp(link)
	} else if err == nil {
		err = netlink.LinkSetDown(link)
	}
	if err != nil {
		t.Fatalf("set %s up (%v) or down: %v", card, up, err)
	}
}
