package main

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/docs/examples/trading/ouch"
	"github.com/unifiedd/unifiedd/docs/examples/trading/soupbin"
)

// TestTicks: a tick is read as it was written, its order of OUCH is one that an exchange takes, and no two ticks are
// the same.
func TestTicks(t *testing.T) {
	seen := map[string]bool{}
	packet := enter()
	for n := uint64(1); n <= 2000; n++ {
		want := tickOf(1, n)
		b := make([]byte, tickLen)
		want.put(b, isTick)
		var got tick
		if err := got.read(b, isTick); err != nil || got != want || got.sequence != n {
			t.Fatalf("%+v is read as %+v: %v", want, got, err)
		}
		seen[string(b[:8])+string(b[16:])] = true
		want.fillEnter(packet)
		p, length, err := soupbin.Next(packet)
		var m ouch.Enter
		if err == nil {
			err = m.Parse(p.Payload)
		}
		if err != nil || length != enterLen || tokenNumber(m.Token) != n || uint32(m.Price) != want.price || m.Shares != want.shares || m.Stock != want.symbol || byte(m.Side) != want.side {
			t.Fatalf("tick %+v gives the order %+v: %v", want, m, err)
		}
	}
	if len(seen) != 2000 {
		t.Errorf("%d of 2000 ticks differ", len(seen))
	}
	for _, b := range [][]byte{nil, make([]byte, tickLen), append([]byte{'T'}, make([]byte, tickLen-2)...)} {
		if err := new(tick).read(b, isTick); err == nil {
			t.Errorf("%q is a tick", b)
		}
	}
}

// TestMoldMessages: what the exchange writes is read, and lengths that lie are refused.
func TestMoldMessages(t *testing.T) {
	packet := make([]byte, moldLen+3)
	putMold(packet, "TODAY", 5, 1, 3)
	copy(packet[moldLen:], "abc")
	if want := "TODAY     \x00\x00\x00\x00\x00\x00\x00\x05\x00\x01\x00\x03abc"; string(packet) != want {
		t.Errorf("%q, want %q", packet, want)
	}
	var got []string
	note := func(b []byte) error { got = append(got, string(b)); return nil }
	if err := moldMessages(packet, note); err != nil || len(got) != 1 || got[0] != "abc" {
		t.Errorf("%q, %v", got, err)
	}
	end := make([]byte, 20)
	putMold(end, "TODAY", 6, endOfSession, 0)
	if err := moldMessages(end, note); err != nil || len(got) != 1 {
		t.Errorf("%q, %v", got, err)
	}
	for cut := range packet {
		if err := moldMessages(packet[:cut], func([]byte) error { return nil }); err == nil {
			t.Errorf("%d bytes of the packet are one", cut)
		}
	}
}

// TestStamps: what the kernel says beside messages is read, and what is cut off gives nothing.
func TestStamps(t *testing.T) {
	native := binary.NativeEndian
	b := native.AppendUint32(native.AppendUint32(native.AppendUint64(nil, 16+48), 1), 37) // SOL_SOCKET, SCM_TIMESTAMPING
	b = native.AppendUint64(native.AppendUint64(b, 3), 7)
	b = append(b, make([]byte, 32)...)
	b = native.AppendUint32(native.AppendUint32(native.AppendUint64(b, 16+28), 0), 11) // SOL_IP, IP_RECVERR
	b = append(native.AppendUint32(b, 42), 4, 0, 0, 0)                                 // ENOMSG, of stamps
	b = append(native.AppendUint32(native.AppendUint32(b, 0), 9), make([]byte, 12+4)...)
	if at, id, numbered := stamps(b); at != 3_000_000_007 || id != 9 || !numbered {
		t.Errorf("%d, %d, %v", at, id, numbered)
	}
	for cut := range len(b) - 4 {
		if _, _, numbered := stamps(b[:cut]); numbered {
			t.Errorf("%d of %d bytes are enough", cut, len(b))
		}
	}
	native.PutUint64(b, 3)
	if at, _, _ := stamps(b); at != 0 {
		t.Errorf("a message shorter than its header gives %d", at)
	}
}

// TestWhatOrdersMustBe: the exchange refuses orders that differ by a byte, come twice, or answer nothing.
func TestWhatOrdersMustBe(t *testing.T) {
	o := options{seed: 1, protocol: plain}
	x := &exchange{o: &o, ticks: make([]moment, 11), next: 8}
	for n := 1; n < 8; n++ {
		x.ticks[n].out = int64(n)
	}
	x.ticks[3].out = 0 // left out
	for _, c := range []struct {
		sequence uint64
		says     string
	}{{1, ""}, {4, ""}, {4, "second"}, {2, "behind"}, {3, "left out"}, {8, "7 ticks were sent"}, {1 << 63, "7 ticks"}, {7, ""}} {
		if err := x.take(order{sequence: c.sequence, own: 1}); (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("order for tick %d: %v", c.sequence, err)
		}
	}
	if x.answered != 3 || x.waiting() {
		t.Errorf("%d were answered, %v", x.answered, x.waiting())
	}
	for _, protocol := range []string{plain, ouchProtocol} {
		o.protocol = protocol
		s := newOrders(-1, &o)
		s.ready = true
		right := bytes.Clone(s.want)
		want := tickOf(1, 5)
		if s.ouch {
			want.fillEnter(right)
		} else {
			want.put(right, isOrder)
		}
		for i := range right {
			wrong := bytes.Clone(right)
			wrong[i] ^= 1
			if sequence, n, err := s.next(wrong); err == nil && n > 0 {
				t.Errorf("%s: byte %d may differ (tick %d)", protocol, i, sequence)
			}
		}
	}
}

// TestResult: the latency is by the kernel's clock only if each order has both stamps.
func TestResult(t *testing.T) {
	o := options{command: commands[0], warm: 1, protocol: plain, wait: spin, stamps: kernel}
	x := &exchange{o: &o, all: 4, next: 5, answered: 3, dropped: 1, orders: &orders{}, ticks: []moment{{}, {1, 9_000, 2, 8_000}, {}, {1000, 6000, 2000, 4000}, {1000, 9000, 2000, 6000}}}
	r := x.result(1)
	if r.Clock != kernel || r.Latency.Count != 2 || r.Latency.Min != 2000 || r.Own.Max < 7990 || r.Own.Max > 8010 || r.Unanswered != 0 || r.judge() != nil {
		t.Errorf("%+v, %+v", r, r.Latency)
	}
	x.ticks[4].inKernel = 0
	if r := x.result(1); r.Clock != own || r.Unstamped != 1 || r.Latency != r.Own {
		t.Errorf("%+v", r)
	}
	x.answered--
	if err := x.result(1).judge(); err == nil || !strings.Contains(err.Error(), "1 of 3") {
		t.Error(err)
	}
}

// TestOptions: mistakes are refused.
func TestOptions(t *testing.T) {
	exchange := []string{"exchange", "-to", "10.0.0.2:5000", "-listen", ":7000"}
	for line, says := range map[string]string{
		"-count 0": "-count", "-burst 0": "-burst", "-rate -1": "-rate", "-loss 91": "-loss", "-size 31": "-size", "-size 1401": "-size", "-mold elevenchars": "ten characters",
		"-wait poll": "spin or sleep", "-protocol fix": "plain or ouch", "-stamps my": "kernel or own", "-to 10.0.0.2": "with a port", "-to x:1": "with a port", "-to :0": "with a port",
		"-listen :1,:2": "one address", "-cpu 1024": "-cpu", "-timeout 0": "-timeout", "-after -1s": "-after", "more": "left over", "-stall 31s": "-stall", "-window 1073741825": "-window",
		"-echo": "-echo is for one line",
	} {
		_, err := parse(append(exchange, strings.Fields(line)...), new(bytes.Buffer))
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", line, err)
		}
	}
	for line, says := range map[string]string{
		"": "either -from, or -flow", "-from :1 -flow f": "either -from, or -flow", "-flow f -mold": "without -mold", "-from :1 -to :1,:2": "one address", "-from :1 -send f": "either -to or -send",
	} {
		_, err := parse(append([]string{"trader", "-to", ":7000"}, strings.Fields(line)...), new(bytes.Buffer))
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("trader %s: %v", line, err)
		}
	}
	if _, err := parse([]string{"trader", "-from", ":1"}, new(bytes.Buffer)); err == nil || !strings.Contains(err.Error(), "either -to or -send") {
		t.Errorf("trader -from :1: %v", err)
	}
	o, err := parse(append(exchange, "-to", "[fd77::2]:5000,239.1.1.1:6", "-rate", "1e6", "-after", "1s"), new(bytes.Buffer))
	if err != nil || o.ticks.String() != "[fd77::2]:5000,239.1.1.1:6" || o.orders.String() != "0.0.0.0:7000" || o.rate != 1e6 || o.after != time.Second {
		t.Errorf("%+v, %v", o, err)
	}
}

// FuzzOrders: whatever a trader sends, the exchange reads no more than there is, and takes no order that answers no tick.
func FuzzOrders(f *testing.F) {
	order := make([]byte, tickLen)
	one := tickOf(1, 1)
	one.put(order, isOrder)
	f.Add(order, false)
	enterOne := enter()
	one.fillEnter(enterOne)
	f.Add(enterOne, true)
	login := soupbin.Login{User: "u"}
	b, _ := login.Append(nil)
	f.Add(append(b, "\x00\x01R\x00\x01O\xff\xffU"...), true)
	f.Fuzz(func(t *testing.T, stream []byte, isOuch bool) {
		o := options{seed: 1, protocol: plain}
		if isOuch {
			o.protocol = ouchProtocol
		}
		s := newOrders(-1, &o)
		s.ready = true
		for len(stream) > 0 {
			sequence, n, err := s.next(stream)
			if err != nil || n == 0 {
				return
			}
			if n > len(stream) || sequence > 0 && !bytes.Equal(stream[:n], s.want) || sequence == 0 && !isOuch {
				t.Fatalf("%d of %d bytes answer tick %d", n, len(stream), sequence)
			}
			stream = stream[n:]
		}
	})
}
