//go:build lab && verbs && cgo

package flows

import (
	"testing"

	"github.com/unifiedd/unifiedd/internal/labenv"
)

// TestWhereItLandedOnVerbs is TestWhereItLanded over verbs of the kernel, with igb as the card, with zero copy where the kernel has it: what comes is
// in one place alone. Both ends are on one Soft-RoCE device, which is not in the cards' namespaces.
func TestWhereItLandedOnVerbs(t *testing.T) {
	verbsDevice = labenv.SoftRoCE(t, "virtio0", "10.79.0.1/24")
	t.Cleanup(func() {
		labenv.RDMAAtRest(t, verbsDevice)
		verbsDevice = ""
	})
	all := watched
	t.Cleanup(func() { watched = all })
	watched = 3 // which takes a second each in the guest
	form := labenv.IgbZeroCopy
	form.Instead(t)
	before := granted
	granted.cards, granted.zeroCopy, granted.offered = true, form.ZeroCopy(t), form.Offers(t)
	t.Cleanup(func() { granted = before })
	TestWhereItLanded(t)
}
