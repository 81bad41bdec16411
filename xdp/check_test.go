package xdp

import (
	"errors"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestInterfaceDown: Kick and Check report an interface that is down. No frame is lost, and the
// error ends when the interface is up again.
func TestInterfaceDown(t *testing.T) {
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	g := newRig(t, small())
	i := g.open(&pair.B, Config{})
	p := i.Ports()[0]
	g.supply(p, 100)
	g.start(i)
	pair.B.SetDown(t)
	peer := listen(t, &pair.A)
	sent := packets(&pair.B, &pair.A, 5, 300)
	p.Send(g.load(sent))
	for range 2 {
		if err := p.Kick(); !errors.Is(err, ErrInterfaceDown) {
			t.Errorf("Kick: %v", err)
		}
	}
	if err := i.Check(); !errors.Is(err, ErrInterfaceDown) {
		t.Errorf("Check: %v", err)
	}
	pair.B.SetUp(t)
	testenv.Checkf(t, i.Check(), "Check")
	g.finishSending(p, 5)
	peer.expect(t, sent)
	testenv.SendRaw(t, &pair.A, packets(&pair.A, &pair.B, 7, 300), testenv.SendOptions{})
	g.receive(p, 7)
}

// TestCheckWhileRenamed: Check does not report an interface as gone that is renamed during the call.
func TestCheckWhileRenamed(t *testing.T) {
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	i := newRig(t, small()).open(&pair.B, Config{})
	pair.B.SetDown(t)
	renamed, checked := make(chan struct{}), make(chan error, 1)
	go func() {
		var err error
		for err == nil || errors.Is(err, ErrInterfaceDown) {
			select {
			case <-renamed:
				checked <- nil
				return
			default:
				err = i.Check()
			}
		}
		checked <- err
	}()
	first := pair.B.Ifname
	for range 300 {
		pair.B.Rename(t, "other0")
		pair.B.Rename(t, first)
	}
	close(renamed)
	testenv.Checkf(t, <-checked, "Check")
}

// TestInterfaceGone: Kick and Check report an interface that is gone. Everything closes, and all
// frames come back.
func TestInterfaceGone(t *testing.T) {
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	g := newRig(t, small())
	i := g.open(&pair.B, Config{})
	p := i.Ports()[0]
	g.supply(p, 100)
	g.start(i)
	testenv.SendRaw(t, &pair.A, packets(&pair.A, &pair.B, 7, 300), testenv.SendOptions{})
	g.worker.Give(g.receive(p, 5+2))
	pair.B.Delete(t)
	p.Send(g.load(packets(&pair.B, &pair.A, 5, 300)))
	if err := p.Kick(); !errors.Is(err, ErrInterfaceGone) {
		t.Errorf("Kick: %v", err)
	}
	if err := i.Check(); !errors.Is(err, ErrInterfaceGone) {
		t.Errorf("Check: %v", err)
	}
	if l := g.balanced(i, 7); l.Of(Received) != 7 {
		t.Errorf("ledger:%s", show(l))
	}
	testenv.Check(t, i.Close())
}

// TestInterfaceRenamed: a new name of the interface changes nothing else.
func TestInterfaceRenamed(t *testing.T) {
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	g := newRig(t, small())
	i := g.open(&pair.B, Config{})
	p := i.Ports()[0]
	g.supply(p, 100)
	g.start(i)
	pair.B.SetDown(t)
	pair.B.Rename(t, "other0")
	pair.B.SetUp(t)
	if err := i.Check(); err != nil || i.Name() != "other0" {
		t.Errorf("Check: %v, name %s", err, i.Name())
	}
	testenv.SendRaw(t, &pair.A, packets(&pair.A, &pair.B, 7, 300), testenv.SendOptions{})
	g.receive(p, 7)
	g.balanced(i, 7)
}
