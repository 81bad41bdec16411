package xdp

import (
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
	"github.com/unifiedd/unifiedd/umem/porttest"
)

// wire describes two ports on the two ends of a veth pair to the contract suite.
func wire(c Config, mtu, most int) porttest.Opener {
	return func(t testing.TB) *porttest.Link {
		pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true, MTU: mtu})
		g := newRig(t, umem.Config{Size: 8 << 20, Pages: umem.Ordinary})
		l := &porttest.Link{
			Worker: g.worker, Header: packet(&pair.A, &pair.B, 0, 18)[:14], Min: 64, Max: most,
			Room: 1500, Landing: 3584, Scratch: metaBytes, SilentReap: true,
		}
		var from, to *Interface
		l.Reopen = func(t testing.TB) {
			for _, i := range []*Interface{from, to} {
				if i != nil && i.Close() != nil {
					t.Fatal("the interface does not close")
				}
			}
			a, b := c, c
			b.Direction, a.Direction = Receive, Send
			from, to = g.open(&pair.A, a), g.open(&pair.B, b)
			l.Sender, l.Receiver = from.Ports()[0], to.Ports()[0]
			g.start(to)
		}
		l.Reopen(t)
		return l
	}
}

func TestPortContract(t *testing.T) {
	porttest.Run(t, wire(Config{RingSize: 128}, 1500, 1500))
}
