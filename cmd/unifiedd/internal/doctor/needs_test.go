package doctor

import (
	"testing"

	"github.com/unifiedd/unifiedd/flows/config"
)

// TestNamelessEnds: for flows without an interface or a file, the doctor examines no interface and
// no file, and not all interfaces of the machine instead.
func TestNamelessEnds(t *testing.T) {
	c := config.Default()
	c.Flows = []config.Flow{config.NewFlowOf(config.KindStorageRDMA, "blocks"), config.NewFlowOf(config.KindRDMARDMA, "relay"), config.NewFlowOf(config.KindNullNull, "made")}
	if n := newNeeds(Options{Config: c}); len(n.interfaces) != 0 || len(n.disks) != 0 {
		t.Errorf("examined are interfaces %q and disks %q, want none", n.interfaces, n.disks)
	}
}
