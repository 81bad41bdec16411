package doctor

import (
	"testing"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestDispatcher: libxdp's dispatcher does not stop a flow that joins it.
func TestDispatcher(t *testing.T) {
	labenv.Guest(t)
	p := testenv.NewPair(t, testenv.PairOptions{})
	testenv.NewLibxdp(t, &p.A).Load(t, testenv.OtherPass)
	c := config.Default()
	flow := config.NewFlow("cap")
	flow.From.Interface, flow.From.Beside = p.A.Ifname, config.BesideLibxdp
	flow.To.File = t.TempDir() + "/cap"
	c.Flows = []config.Flow{flow}
	c.Complete()
	expect(t, "joined", of(t, onPair(t, p, Options{Config: c}), "interface "+p.A.Ifname, "XDP program"), OK, "flow cap joins it")
	c.Flows[0].From.Beside = ""
	expect(t, "not joined", of(t, onPair(t, p, Options{Config: c}), "interface "+p.A.Ifname, "XDP program"), Fail, "xdp_dispatcher")
}
