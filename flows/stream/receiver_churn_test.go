package stream

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma/connect"
)

// testChurn: peers of all kinds connect and leave at the same time. Afterwards a new peer gets its
// whole window, and no receive and no credit is lost, as sink.close checks.
func testChurn(t *testing.T, g *rig) {
	c := receiverConfig()
	k := g.far.newSink(c, c.Peers*c.Window-5)
	rounds := 40
	if testing.Short() {
		rounds = 6
	}
	var all sync.WaitGroup
	for n := range c.Peers {
		all.Go(func() {
			session := uint64(n + 1)
			for range testenv.Fewer(rounds) {
				p, err := g.near.tryDial(k.address, hello(session), connect.Config{})
				if err != nil {
					continue // the slot of the earlier connection is not free yet
				}
				p.churn(rand.IntN(6))
			}
		})
	}
	all.Wait()
	var p *raw
	testenv.Wait(t, 30*time.Second, "a slot to be free", func() bool {
		var err error
		p, err = g.near.tryDial(k.address, hello(100), connect.Config{})
		return err == nil
	})
	p.send(3*c.Window, 100)
	p.awaitAcked()
}

// churn sends some messages and ends the connection in one of several ways.
func (p *raw) churn(way int) {
	p.send(rand.IntN(40), 200)
	switch way {
	case 0:
		p.awaitAcked()
	case 1:
		attacks[rand.IntN(len(attacks))].do(p)
		p.ended()
	case 2:
		p.post(p.message(1<<40, nil)) // and leaves without waiting
	case 3:
		testenv.Check(p, p.pair.Modify(errorState()))
	}
	testenv.Check(p, p.conn.Close())
}
