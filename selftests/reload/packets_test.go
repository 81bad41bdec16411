package reload

import (
	"encoding/binary"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/selftests/harness"
)

// packets sends datagrams as unified-flow-test does, on a wire to a flow. It does not run ahead of
// the flow by more than the flow's rings hold. Any loss is then a fault of the flow, however slow
// the machine is.
type packets struct {
	rig    *rig
	flow   string
	sender *testenv.Sender
	frame  []byte
	quit   atomic.Bool
	ended  chan struct{}
}

// How many packets may be ahead of a flow, how many are sent between two checks of it, and the
// length of their headers.
const (
	ahead   = 800
	look    = 100
	headers = 14 + 20 + 8
)

// send starts to send.
func (r *rig) send(w wire, flow string) *packets {
	r.t.Helper()
	from := testenv.End{Namespace: r.A.Namespace, Ifname: w.name, MAC: make(net.HardwareAddr, 6), IP: netip.MustParseAddr("10.78.0.1")}
	to := from
	to.IP = from.IP.Next()
	r.A.Do(r.t, func() {
		link, err := net.InterfaceByName(w.name)
		testenv.Must(r.t, err)
		from.Index, from.MAC = link.Index, link.HardwareAddr
	})
	p := &packets{rig: r, flow: flow, sender: testenv.NewSender(r.t, &from), frame: testenv.UDP(&from, &to, 5000, 0, 600), ended: make(chan struct{})}
	binary.BigEndian.PutUint16(p.frame[headers-2:], 0) // no checksum
	go func() { defer close(p.ended); p.run() }()
	r.t.Cleanup(func() { p.quit.Store(true); <-p.ended })
	return p
}

func (p *packets) run() {
	begin := time.Now()
	for n := uint64(1); n <= p.rig.total && !p.quit.Load(); n++ {
		if n%look == 0 && !p.wait(n) {
			return
		}
		if early := time.Until(begin.Add(time.Duration(n) * time.Second / packetRate)); early > 0 {
			time.Sleep(early)
		}
		payload := p.frame[headers:]
		binary.BigEndian.PutUint64(payload, n)
		harness.Fill(payload[8:], 1, n)
		if sent, err := p.sender.Send(p.frame); !sent || err != nil {
			p.rig.t.Errorf("packet %d for flow %s is not sent: %v", n, p.flow, err)
			return
		}
	}
}

// wait waits until the flow has received the sent packets, except those that may be ahead. It
// returns false if that takes too long.
func (p *packets) wait(n uint64) bool {
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end) && !p.quit.Load(); time.Sleep(5 * time.Millisecond) {
		s, err := p.rig.Status()
		if err != nil {
			continue // it is slow, or gone; the test detects that
		}
		for _, f := range s.Flows {
			if f.Name == p.flow && f.Offered-f.Waiting+ahead >= n {
				return true
			}
		}
	}
	if !p.quit.Load() {
		p.rig.t.Errorf("flow %s does not take packet %d", p.flow, n)
	}
	return false
}

// over reports whether all are sent.
func (p *packets) over() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}
