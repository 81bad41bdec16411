package interop

import (
	"fmt"
	"strings"
	"testing"
)

// wire tests the connection between guest and namespace: packets of all sizes up to the MTU pass
// both ways, each kernel answers for its addresses, and the device has GIDs for them.
func (b *bench) wire(t *testing.T) {
	const pings = `for to in %v %v; do for size in 56 %d; do ping -q -c 2 -i 0.1 -M do -s $size $to || exit 1; done; done`
	const headers = 40 + 8
	b.tap.Run(t, "bash", "-c", fmt.Sprintf(pings, b.tap.PeerIP, b.tap.PeerIP6, mtu-headers))
	b.run(t, fmt.Sprintf(pings, b.tap.IP, b.tap.IP6, mtu-headers))
	offloads := b.run(t, "ethtool -k "+card)
	for _, name := range []string{"tx-checksumming", "tcp-segmentation-offload"} {
		if !strings.Contains(offloads, name+": off") {
			t.Errorf("the guest's card leaves to others what they do not do:\n%s", offloads)
		}
	}
	for _, ip := range [][16]byte{b.tap.PeerIP.As16(), b.tap.PeerIP6.As16()} {
		if _, ok := b.gids[fmt.Sprintf("%x", ip)]; !ok {
			t.Errorf("%s has not the address %x: %v", device, ip, b.gids)
		}
	}
}
