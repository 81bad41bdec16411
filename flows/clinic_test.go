package flows

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/captures"
)

// clinic has two flows on one worker. The test harms "ill", and "well" must not be affected.
type clinic struct {
	*lab
	other     *testenv.Pair
	ill, well *Flow
	sent      uint64 // packets to ill, numbered from 0
	stop      func() uint64
}

// newClinic starts well and sends traffic to it; the test starts ill. from and to are settings of ill, from beside its ring
// or with its engine. DIR in to stands for the lab's directory.
func newClinic(t *testing.T, from, to string) *clinic {
	t.Helper()
	c := &clinic{lab: newLab(t, testenv.PairOptions{NoAddresses: true})}
	c.other = testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	text := fmt.Sprintf(`
region: {size: 96MiB, extent: 512KiB, extents: 16}
flows:
  - {name: ill, from: {interface: %s, %s}, to: {%s}}
  - {name: well, from: {interface: %s, ring: 4096}, to: {file: %s/well, segment: {size: 8MiB}, flush: 20ms, durable: 50ms}}
`, c.B.Ifname, withRing(from), strings.ReplaceAll(to, "DIR", c.dir), c.other.B.Ifname, c.dir)
	d := c.open(t, text, Options{})
	c.ill, c.well = d.Flows()[0], d.Flows()[1]
	c.other.B.Do(t, func() { testenv.Must(t, c.well.Start()) })
	c.stop = c.background(t)
	t.Cleanup(func() { c.healthy(t) })
	return c
}

func withRing(from string) string {
	if from == packetSocket {
		return from
	}
	return "ring: 2048" + from
}

// prescribe changes the settings of ill, which must not run.
func (c *clinic) prescribe(t *testing.T, from, to string) {
	t.Helper()
	text := fmt.Sprintf("flows: [{name: ill, from: {interface: %s, %s}, to: {%s}}]", c.B.Ifname, withRing(from), strings.ReplaceAll(to, "DIR", c.dir))
	c.ill.config = c.parsed(t, text).Flows[0]
}

// background sends numbered packets to well until stop is called. stop returns how many it sent.
func (c *clinic) background(t *testing.T) (stop func() uint64) {
	s := testenv.NewSender(t, &c.other.A)
	quit, done := make(chan struct{}), make(chan uint64, 1)
	go func() {
		n := uint64(0)
		for {
			for range 20 {
				if ok, err := s.Send(testenv.UDP(&c.other.A, &c.other.B, 5000, n, 200)); ok && err == nil {
					n++
				}
			}
			select {
			case <-quit:
				done <- n
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	}()
	return func() uint64 { close(quit); return <-done }
}

// healthy checks that well has captured every packet, still runs and has no error. It stops well.
func (c *clinic) healthy(t *testing.T) {
	t.Helper()
	sent := c.stop()
	s := await(t, c.well, "the other flow's packets", func(s status.Flow) bool { return s.Packets+lost(s) >= sent })
	if n := lost(s); n > 0 {
		t.Errorf("the other flow lost %d packets: %v", n, s.Dropped)
	}
	if s.State != status.Running || s.Error != "" {
		t.Errorf("the other flow is %s: %s", s.State, s.Error)
	}
	if err := c.well.Stop(); err != nil {
		t.Errorf("stop the other flow: %v", err)
	}
	files, _ := filepath.Glob(c.dir + "/well-*.pcapng")
	inSequence(t, captures.Packets(t, files...), 0, sent)
}

// lost is how many packets the interface or its rings lost.
func lost(s status.Flow) (n uint64) {
	for _, dropped := range s.Dropped {
		n += dropped
	}
	return n
}

// inSequence checks that there are n packets, numbered from first.
func inSequence(t *testing.T, got [][]byte, first, n uint64) {
	t.Helper()
	for i, p := range got {
		if number, ok := testenv.Sequence(p); !ok || number != first+uint64(i) || !testenv.Intact(p) {
			t.Errorf("packet %d has number %d, not %d", i, number, first+uint64(i))
			return
		}
	}
	if uint64(len(got)) != n {
		t.Errorf("%d packets, want %d", len(got), n)
	}
}

// start starts ill, which must succeed.
func (c *clinic) start(t *testing.T) {
	t.Helper()
	c.begin(t, c.ill.Start)
}

// try starts ill and returns the error.
func (c *clinic) try(t *testing.T) (err error) {
	t.Helper()
	c.B.Do(t, func() { err = c.ill.Start() })
	return err
}

// send sends n packets to ill, whether it takes them or not.
func (c *clinic) send(t *testing.T, n int) {
	t.Helper()
	c.sent += uint64(testenv.SendRaw(t, &c.A, testenv.Stream(&c.A, &c.B, 5000, c.sent, n, 1000), testenv.SendOptions{Rate: 20000}))
}

// capture sends n packets to ill and waits until ill has received all of them.
func (c *clinic) capture(t *testing.T, n int) {
	t.Helper()
	before := c.ill.Status().Packets
	c.sent += uint64(c.feed(t, c.ill, testenv.Stream(&c.A, &c.B, 5000, c.sent, n, 1000), 20000))
	await(t, c.ill, "the packets", func(s status.Flow) bool { return s.Packets == before+uint64(n) })
}

// becomes waits for a state of ill, and checks what its error says.
func (c *clinic) becomes(t *testing.T, state status.State, says ...string) status.Flow {
	t.Helper()
	s := await(t, c.ill, "the flow to be "+string(state), func(s status.Flow) bool { return s.State == state })
	testenv.MessageNames(t, s.Error, says)
	return s
}

// illFiles are the packets in ill's files.
func (c *clinic) illFiles(t *testing.T) [][]byte {
	t.Helper()
	files, _ := filepath.Glob(c.dir + "/ill-*.pcapng")
	return captures.Packets(t, files...)
}

// free checks that an interface has no XDP program.
func free(t *testing.T, ns *testenv.Namespace, name string) {
	t.Helper()
	if id := attached(t, ns, name); id != 0 {
		t.Errorf("program %d is still on %s", id, name)
	}
}

// attached returns the ID of the XDP program on an interface; 0: none.
func attached(t *testing.T, ns *testenv.Namespace, name string) (id uint32) {
	t.Helper()
	ns.Do(t, func() {
		l, err := netlink.LinkByName(name)
		testenv.Must(t, err)
		if x := l.Attrs().Xdp; x != nil && x.Attached {
			id = x.ProgId
		}
	})
	return id
}

const toFile = "file: DIR/ill, segment: {size: 8MiB}, flush: 200ms, durable: 100ms"
