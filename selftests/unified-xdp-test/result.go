package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/unifiedd/unifiedd/internal/latency"
	"github.com/unifiedd/unifiedd/selftests/harness"
	"github.com/unifiedd/unifiedd/xdp"
)

// moment has the clocks and counters at one moment.
type moment struct {
	clocks    harness.Clocks
	in, out   xdp.Traffic
	completed uint64
	refused   uint64
	invalid   uint64 // descriptors the kernel refused
	kicks     uint64
}

// take reads the process's clocks and the ports' counters.
func (j *job) take() (m moment, err error) {
	for _, p := range j.session.iface.Ports() {
		s, err := p.Stats()
		if err != nil {
			return m, err
		}
		sum(&m.in, s.Received)
		sum(&m.out, s.Sent)
		m.completed += s.Completed
		m.refused += s.Refused
		m.invalid += s.Kernel.TxInvalid
		m.kicks += s.Wakeups
	}
	m.clocks = harness.ReadClocks()
	return m, nil
}

func sum(t *xdp.Traffic, add xdp.Traffic) {
	t.Packets += add.Packets
	t.Frames += add.Frames
	t.Bytes += add.Bytes
}

// moved returns how many packets the mode has moved so far.
func (j *job) moved() uint64 {
	m, err := j.take()
	if err != nil {
		return 0 // for a live count only; the end reports the error
	}
	if j.session.options.mode == rx {
		return m.in.Packets
	}
	return m.out.Packets
}

// result is the result of a mode. Rates and costs are those of received packets for -rx, and of
// sent packets for the other modes.
type result struct {
	Granted  granted           `json:"granted"`
	Mode     mode              `json:"mode"`
	Wait     string            `json:"wait"`
	Seconds  float64           `json:"seconds"`
	Received uint64            `json:"received_packets"`
	BytesIn  uint64            `json:"received_bytes"`
	Sent     uint64            `json:"sent_packets"`
	BytesOut uint64            `json:"sent_bytes"`
	Finished uint64            `json:"completed_frames"`
	Refused  uint64            `json:"refused_frames"`
	Invalid  uint64            `json:"invalid_descriptors"`
	Packets  float64           `json:"packets_per_second"`
	Bits     float64           `json:"bits_per_second"` // of the bytes above
	User     float64           `json:"user_ns_per_packet"`
	System   float64           `json:"system_ns_per_packet"`
	Waits    float64           `json:"waits_per_packet"`
	Kicks    float64           `json:"kicks_per_packet"`
	Offered  uint64            `json:"offered_packets"`
	Ledger   map[string]uint64 `json:"ledger,omitempty"`
	Lost     uint64            `json:"lost_packets"`
	Latency  *latency.Summary  `json:"round_trip,omitempty"`
	NoEcho   uint64            `json:"no_echo,omitempty"`
	Late     uint64            `json:"late_echoes,omitempty"`
}

func (j *job) newResult(a, b moment) (*result, error) {
	o := &j.session.options
	r := &result{Granted: j.session.granted(), Mode: o.mode, Wait: o.wait, Seconds: b.clocks.At.Sub(a.clocks.At).Seconds(),
		Received: b.in.Packets - a.in.Packets, BytesIn: b.in.Bytes - a.in.Bytes,
		Sent: b.out.Packets - a.out.Packets, BytesOut: b.out.Bytes - a.out.Bytes,
		Finished: b.completed - a.completed, Refused: b.refused - a.refused, Invalid: b.invalid - a.invalid}
	packets, bytes := r.Sent, r.BytesOut
	if o.mode == rx {
		packets, bytes = r.Received, r.BytesIn
	}
	n := max(1, float64(packets))
	r.Packets, r.Bits = float64(packets)/r.Seconds, float64(bytes)*8/r.Seconds
	r.User, r.System = b.clocks.PerOperation(a.clocks, n)
	r.Kicks = float64(b.kicks-a.kicks) / n
	for _, w := range j.workers {
		r.Waits += float64(w.waiter.waits) / n
	}
	if p := j.pinger; p != nil {
		r.Latency, r.NoEcho, r.Late = p.hist.Summary(), p.lost, p.late
	}
	return r, r.addLedger(j.session.iface)
}

// addLedger adds the outcomes of arrived packets.
func (r *result) addLedger(i *xdp.Interface) error {
	if r.Mode == tx {
		return nil
	}
	l, err := i.Ledger()
	if err != nil {
		return err
	}
	r.Offered, r.Lost, r.Ledger = l.Offered, l.Lost(), make(map[string]uint64)
	for _, reason := range xdp.Reasons() {
		if n := l.Of(reason); n > 0 {
			r.Ledger[reason.String()] = n
		}
	}
	return nil
}

// errShort means that the program ended before its count.
var errShort = errors.New("ended before its count")

// judge returns an error if the result differs from the request.
func (r *result) judge(o options) error {
	moved := r.Sent
	if r.Mode == rx {
		moved = r.Received
	}
	switch {
	case r.Invalid > 0:
		return fmt.Errorf("the kernel refused %d descriptors", r.Invalid)
	case o.count > 0 && moved < o.count:
		return fmt.Errorf("%w: %d of %d packets", errShort, moved, o.count)
	case r.Mode == ping && r.Latency == nil:
		return fmt.Errorf("no echo of %d packets came back (run unified-xdp-test -echo at the other end, and give its MAC address with -to)", r.Sent)
	}
	return nil
}

// print prints the result for people or programs.
func (r *result) print(w io.Writer, asJSON bool) error { return harness.Print(w, asJSON, r, r.rows) }

func (r *result) rows(t io.Writer) {
	r.Granted.print(t)
	fmt.Fprintf(t, "\n%s, waiting by %s, %.2f s\n", r.Mode, r.Wait, r.Seconds)
	if r.Mode != tx {
		fmt.Fprintf(t, "received\t%d packets, %d bytes\n", r.Received, r.BytesIn)
	}
	if r.Mode != rx {
		fmt.Fprintf(t, "sent\t%d packets, %d bytes, %d frames done, %d refused\n", r.Sent, r.BytesOut, r.Finished, r.Refused)
	}
	fmt.Fprintf(t, "rate\t%.0f packets/s, %s\n", r.Packets, bits(r.Bits))
	fmt.Fprintf(t, "processor\t%.0f ns per packet (user %.0f, system %.0f)\n", r.User+r.System, r.User, r.System)
	fmt.Fprintf(t, "wake-ups\t%.4f waits and %.4f kicks per packet\n", r.Waits, r.Kicks)
	if r.Mode != tx {
		fmt.Fprintf(t, "ledger\t%d offered since the start", r.Offered)
		for _, reason := range xdp.Reasons() {
			if n := r.Ledger[reason.String()]; n > 0 {
				fmt.Fprintf(t, ", %d %s", n, strings.ReplaceAll(reason.String(), "_", " "))
			}
		}
		fmt.Fprintln(t)
	}
	if l := r.Latency; l != nil {
		fmt.Fprintf(t, "round trip\t%s\n", harness.LatencyText(l))
		fmt.Fprintf(t, "echoes\t%d came back, %d did not, %d late\n", l.Count, r.NoEcho, r.Late)
	}
}

// bits returns a rate as text for people.
func bits(perSecond float64) string {
	for _, unit := range []struct {
		size float64
		name string
	}{{1e9, "Gbit/s"}, {1e6, "Mbit/s"}, {1e3, "kbit/s"}} {
		if perSecond >= unit.size {
			return fmt.Sprintf("%.2f %s", perSecond/unit.size, unit.name)
		}
	}
	return fmt.Sprintf("%.0f bit/s", perSecond)
}
