//go:build verbs && cgo

package flows

import (
	"testing"

	"github.com/unifiedd/unifiedd/internal/labenv"
)

// TestWhereItLandedOnVerbs is TestWhereItLanded over verbs of the kernel, with igb as the card, and with zero
// copy if the kernel has it. Each message is in one place only. Both ends are on one Soft-RoCE device, which
// is not in the cards' namespaces.
func TestWhereItLandedOnVerbs(t *testing.T) {
	labenv.Guest(t)
	verbsDevice = labenv.SoftRoCE(t, "virtio0", "10.79.0.1/24")
	t.Cleanup(func() {
		labenv.RDMAAtRest(t, verbsDevice)
		verbsDevice = ""
	})
	all := watched
	t.Cleanup(func() { watched = all })
	watched = 3 // each takes a second in the guest
	form := labenv.IgbZeroCopy
	form.Instead(t)
	before := granted
	granted.cards, granted.zeroCopy, granted.offered = true, form.ZeroCopy(t), form.Offers(t)
	t.Cleanup(func() { granted = before })
	TestWhereItLanded(t)
}
