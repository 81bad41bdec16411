package flows

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	library "github.com/unifiedd/unifiedd/flows/attached"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// desk is an exchange at end A whose packets begin with their length (2). It keeps those that are no heartbeats.
type desk struct {
	t     *testing.T
	conns chan *net.TCPConn
	mu    sync.Mutex
	got   []string
	beats int
}

func (l *lab) desk(t *testing.T) *desk {
	t.Helper()
	x := &desk{t: t, conns: make(chan *net.TCPConn, 16)}
	var listener *net.TCPListener
	l.A.Do(t, func() {
		var err error
		listener, err = net.ListenTCP("tcp", &net.TCPAddr{IP: l.A.IP.AsSlice(), Port: 4001})
		testenv.Must(t, err)
	})
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			c, err := listener.AcceptTCP()
			if err != nil {
				return
			}
			go x.read(c)
			x.conns <- c
		}
	}()
	return x
}

func (x *desk) read(c *net.TCPConn) {
	for {
		var length [2]byte
		if _, err := io.ReadFull(c, length[:]); err != nil {
			return
		}
		b := make([]byte, binary.BigEndian.Uint16(length[:]))
		if _, err := io.ReadFull(c, b); err != nil {
			return
		}
		x.mu.Lock()
		if string(b) == "R" {
			x.beats++
		} else {
			x.got = append(x.got, string(b))
		}
		x.mu.Unlock()
	}
}

// next returns the next connection.
func (x *desk) next() *net.TCPConn {
	x.t.Helper()
	select {
	case c := <-x.conns:
		x.t.Cleanup(func() { c.Close() })
		return c
	case <-time.After(testenv.Within(20 * time.Second)):
		x.t.Fatal("nobody connects")
		return nil
	}
}

// has waits until so many packets have come, and returns all.
func (x *desk) has(n int) []string {
	x.t.Helper()
	testenv.Wait(x.t, 20*time.Second, fmt.Sprintf("%d packets", n), func() bool {
		x.mu.Lock()
		defer x.mu.Unlock()
		return len(x.got) >= n
	})
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.got
}

// ask is a message of a feed: an offer at a price. Its order is what the rule of rulesOf makes.
func ask(name string, shares, price uint32) []byte {
	b := binary.BigEndian.AppendUint32(append([]byte("A"), name...), shares)
	return binary.LittleEndian.AppendUint32(b, price)
}

// orderFor is the order for an ask, with the counter's value.
func orderFor(n int, m []byte) string {
	price := binary.BigEndian.AppendUint32(nil, binary.LittleEndian.Uint32(m[9:]))
	return fmt.Sprintf("UO%06d", n) + string(m[5:9]) + string(price) + "IOC"
}

// rulesOf returns a flow's rule for asks of UNFD up to a price, with a session.
const rulesOf = `
        login: {send: [{hex: "0005"}, {text: login}], answer: [{at: 2, is: A}]}
        heartbeat: {every: 50ms, send: [{hex: "0001"}, {text: R}]}
        counter: 7
        rules:
          - name: cheap
            when: [{is: A}, {at: 1, is: UNFD}, {at: 9, bits: 32, order: little, max: 2000}]
            order: [{hex: "0013"}, {text: UO}, {counter: decimal, bytes: 6}, {copy: 5, bytes: 4}, {copy: 9, bytes: 4, reverse: true}, {text: IOC}]
`

// rules returns a configuration of a flow from end B, which has stages, to the exchange at end A.
func (l *lab) rules(stages, limits string) string {
	return fmt.Sprintf(`
region: {size: 64MiB}
workers: [{name: main, wait: sleep}]
flows:
  - name: hits
    from: {interface: %[1]s, queues: [0], ring: 512, filter: udp dst portrange 7000-7001}
    stages: [%[2]s]
    to:
      order:
        connect: "%[3]s:4001"
        interface: %[1]s
        queue: 1
        retry: 50ms
        times: %[4]s/times.csv
        limits: {%[5]s}
%[6]s`, l.B.Ifname, stages, l.A.IP, l.dir, limits, strings.TrimPrefix(rulesOf, "\n"))
}

// newRules makes a lab in which all packets to end B come on queue 0.
func newRules(t *testing.T) *lab {
	t.Helper()
	l := newLab(t, testenv.PairOptions{Queues: 2})
	testenv.Tool(t, "ethtool")
	l.A.Run(t, "ethtool", "-L", l.A.Ifname, "tx", "1")
	return l
}

// mold2 returns the stage that puts messages of both lines in order.
func (l *lab) mold2() string {
	return fmt.Sprintf("{moldudp64: {lines: [{name: a, address: %[1]s, port: 7000}, {name: b, address: %[1]s, port: 7001}], gap: 50ms}}", l.B.IP)
}

// molded makes a packet of messages.
func molded(first uint64, messages ...[]byte) []byte {
	b := binary.BigEndian.AppendUint64([]byte("TODAY     "), first)
	b = binary.BigEndian.AppendUint16(b, uint16(len(messages)))
	for _, m := range messages {
		b = append(binary.BigEndian.AppendUint16(b, uint16(len(m))), m...)
	}
	return b
}

// until waits until the rules of a flow have looked at so many messages, and each order of them has left or is counted as
// refused. A message is counted before its order.
func until(t *testing.T, f *Flow, messages uint64) status.Flow {
	t.Helper()
	return await(t, f, fmt.Sprintf("%d messages", messages), func(s status.Flow) bool {
		r, orders := s.Orders.Rules, uint64(0)
		for _, n := range s.Dropped {
			orders += n
		}
		for _, one := range r.Rules {
			orders += one.Left
		}
		return r.Matched+r.Unmatched+r.Short >= messages && orders == r.Matched
	})
}

// TestOrderRules: a rule makes orders of the messages of a feed, each once and in order, whichever line has them. They
// leave behind the login, within the limits and not with the kill switch on, and are counted. The file of times has each.
func TestOrderRules(t *testing.T) {
	l := newRules(t)
	x := l.desk(t)
	d := l.start(t, l.rules(l.mold2(), "price: {offset: 14, bits: 32, max: 1500, at: 2, is: UO}"), Options{})
	f := d.Flows()[0]
	c := x.next()
	lines := [2]*net.UDPConn{l.dialed(t, 7000), l.dialed(t, 7001)}
	seq, want, refused := uint64(1), []string{"login"}, map[string]uint64{}
	send := func(messages ...[]byte) {
		t.Helper()
		p := molded(seq, messages...)
		for i, line := range lines {
			if (int(seq)+i)%3 != 0 || i == 1 { // the first one loses some
				if _, err := line.Write(p); err != nil {
					t.Fatal(err)
				}
			}
		}
		seq += uint64(len(messages))
		until(t, f, seq-1)
	}
	send(ask("UNFD", 1, 1000))
	if x.has(1); f.Status().Orders.Rules.LoggedIn {
		t.Error("the flow has logged in without an answer")
	}
	refused["not_connected"] = 1
	if _, err := c.Write([]byte("\x00\x01A")); err != nil {
		t.Fatal(err)
	}
	await(t, f, "the login", func(s status.Flow) bool { return s.Orders.Rules.LoggedIn })
	left := 0
	hit := func(shares, price uint32) []byte {
		m := ask("UNFD", shares, price)
		want = append(want, orderFor(7+left, m))
		left++
		return m
	}
	for i := range uint32(100) {
		send(hit(i, 1000+i), ask("OTHR", i, 1), []byte("A"), ask("UNFD", i, 2001), hit(i, 0))
		send(ask("UNFD", i, 1501))
		refused["price_outside"]++
	}
	if _, err := d.StopOrders("hits"); err != nil {
		t.Fatal(err)
	}
	send(ask("UNFD", 5, 5), ask("UNFD", 6, 6))
	refused["orders_stopped"] = 2
	if _, err := d.ResumeOrders("hits"); err != nil {
		t.Fatal(err)
	}
	send(hit(9, 9))
	if got := x.has(len(want)); fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
		t.Errorf("the exchange got %d packets: %q, want %d: %q", len(got), got, len(want), want)
	}
	s := await(t, f, "stamps", func(s status.Flow) bool {
		return s.Orders.Times.TickToOut != nil && s.Orders.Times.TickToOut.Count == int64(left)
	})
	testenv.Wait(t, 10*time.Second, "a heartbeat", func() bool { x.mu.Lock(); defer x.mu.Unlock(); return x.beats > 2 })
	r := s.Orders.Rules
	t.Logf("%+v, %+v, kernel %v, waits %v, tick to out %+v", *r, s.Orders.Times, s.Orders.Kernel, s.Orders.Waits, s.Orders.Times.TickToOut)
	if r.Matched != uint64(left)+103 || r.Unmatched != 200 || r.Short != 100 || r.NoUDP != 0 || len(r.Rules) != 1 || r.Rules[0].Name != "cheap" || r.Rules[0].Left != uint64(left) || r.Rules[0].Matched != r.Matched {
		t.Errorf("%d orders have left: %+v", left, r)
	}
	maps.DeleteFunc(s.Dropped, func(_ string, n uint64) bool { return n == 0 })
	if !maps.Equal(s.Dropped, refused) || s.Orders.Held != 2 || s.Orders.Times.NoTick != 0 || s.Orders.Segments < uint64(left)/4 {
		t.Errorf("refused: %v, want %v; %+v", s.Dropped, refused, s.Orders)
	}
	testenv.Must(t, f.Stop())
	text, err := os.ReadFile(filepath.Join(l.dir, "times.csv"))
	if n := bytes.Count(text, []byte("\n")); err != nil || n != left+1 {
		t.Errorf("the file of times has %d lines, %v", n, err)
	}
}

// TestOrderRulesHostile: packets that are no datagrams or lie make no order, whatever their bytes are, and are counted.
// The flow goes on.
func TestOrderRulesHostile(t *testing.T) {
	l := newRules(t)
	x := l.desk(t)
	f := l.start(t, l.rules("", ""), Options{}).Flows()[0]
	if _, err := x.next().Write([]byte("\x00\x01A")); err != nil {
		t.Fatal(err)
	}
	await(t, f, "the login", func(s status.Flow) bool { return s.Orders.Rules.LoggedIn })
	const at = 14 + 20 // of the header of UDP
	udp := func(payload []byte) []byte {
		p := append(testenv.UDP(&l.A, &l.B, 7000, 0, 0)[:at+8], payload...)
		binary.BigEndian.PutUint16(p[16:], uint16(len(p)-14))
		binary.BigEndian.PutUint16(p[at+4:], uint16(len(p)-at))
		return p
	}
	good := ask("UNFD", 100, 1000)
	var frames [][]byte
	short, noUDP := uint64(0), uint64(0)
	for n := range len(good) { // every truncation of a message that fits
		frames = append(frames, udp(good[:n]))
		short++
	}
	for _, lie := range []uint16{0, 7, uint16(len(good)) + 9, 0xffff} { // lengths of UDP
		p := udp(good)
		binary.BigEndian.PutUint16(p[at+4:], lie)
		frames = append(frames, p)
		noUDP++
	}
	for _, change := range []func(p []byte){ // of IP
		func(p []byte) { p[16], p[17] = 0, 21 },      // it ends in UDP's header
		func(p []byte) { p[16], p[17] = 0xff, 0xff }, // it is longer than the packet
		func(p []byte) { p[20] |= 0x20 },             // more fragments follow
	} {
		p := udp(good)
		change(p)
		frames = append(frames, p)
		noUDP++
	}
	random := rand.New(rand.NewPCG(3, 4))
	others := uint64(0)
	for range 2000 { // any bytes but those that fit
		b := make([]byte, 13+random.IntN(1400))
		for i := range b {
			b[i] = byte(random.Uint32())
		}
		if copy(b, good[:random.IntN(len(good))]); b[0] == 'A' {
			b[1+random.IntN(4)] ^= 1 << random.IntN(8)
		}
		if string(b[:5]) == "AUNFD" {
			b[1] = 'X'
		}
		frames = append(frames, udp(b))
		others++
	}
	testenv.SendRaw(t, &l.A, frames, testenv.SendOptions{Rate: 10000})
	testenv.SendRaw(t, &l.A, [][]byte{udp(good)}, testenv.SendOptions{})
	want := []string{"login", orderFor(7, good)}
	if got := x.has(2); fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
		t.Errorf("the exchange got %q, want %q", got, want)
	}
	s := await(t, f, "all packets to be counted", func(s status.Flow) bool {
		r := s.Orders.Rules
		return r.Matched+r.Unmatched+r.Short+r.NoUDP == uint64(len(frames)+1)
	})
	if r := s.Orders.Rules; r.Matched != 1 || r.Short != short || r.NoUDP != noUDP || r.Unmatched != others {
		t.Errorf("%+v, want %d short, %d without a datagram, %d others", r, short, noUDP, others)
	}
}

// TestOrderRulesLogin: a flow whose login the exchange refuses sends nothing, ends the connection, and tries again. Behind
// a lost connection the counter goes on.
func TestOrderRulesLogin(t *testing.T) {
	l := newRules(t)
	x := l.desk(t)
	f := l.start(t, l.rules(l.mold2(), ""), Options{}).Flows()[0]
	if _, err := x.next().Write([]byte("\x00\x02JA")); err != nil {
		t.Fatal(err)
	}
	s := await(t, f, "the end of the connection", func(s status.Flow) bool { return s.Orders.Lost == 1 })
	c := x.next()
	if _, err := c.Write([]byte("\x00")); err != nil { // in pieces
		t.Fatal(err)
	}
	line := l.dialed(t, 7000)
	first := ask("UNFD", 1, 1)
	send := func(seq uint64) {
		if _, err := line.Write(molded(seq, first)); err != nil {
			t.Fatal(err)
		}
		until(t, f, seq)
	}
	send(1)
	if _, err := c.Write([]byte("\x01A")); err != nil {
		t.Fatal(err)
	}
	await(t, f, "the login", func(s status.Flow) bool { return s.Orders.Rules.LoggedIn })
	send(2)
	x.has(3)
	c.SetLinger(0)
	c.Close()
	s = await(t, f, "the end of the connection", func(s status.Flow) bool { return s.Orders.Lost == 2 })
	if s.Orders.Rules.LoggedIn {
		t.Errorf("logged in without a connection: %+v", s.Orders.Rules)
	}
	if _, err := x.next().Write([]byte("\x00\x01A")); err != nil {
		t.Fatal(err)
	}
	await(t, f, "the login", func(s status.Flow) bool { return s.Orders.Rules.LoggedIn })
	send(3)
	want := []string{"login", "login", orderFor(7, first), "login", orderFor(8, first)}
	if got := x.has(5); fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
		t.Errorf("the exchange got %q, want %q", got, want)
	}
	if s := f.Status(); s.Dropped["not_connected"] != 1 || s.Orders.Connections != 3 {
		t.Errorf("%v, %+v", s.Dropped, s.Orders)
	}
}

// TestOrderRulesGiven: rules make orders on a connection on which a program has logged in, and which it gives.
func TestOrderRulesGiven(t *testing.T) {
	l := newRules(t)
	x := l.desk(t)
	text := l.rules(l.mold2(), "rate: 10, burst: 3")
	before, rest, _ := strings.Cut(text, `connect: "`)
	_, rest, _ = strings.Cut(rest, "\n")
	text = before + "given: session\n" + rest
	for _, key := range []string{"login: {", "retry: ", "heartbeat: {"} {
		before, rest, ok := strings.Cut(text, "        "+key)
		if !ok {
			t.Fatalf("%s is not in %s", key, text)
		}
		_, rest, _ = strings.Cut(rest, "\n")
		text = before + rest
	}
	text += fmt.Sprintf("attach: {socket: %s/attach.sock, programs: [{name: session, user: \"%d\", in: 1MiB}]}\n", l.dir, os.Getuid())
	f := l.start(t, text, Options{}).Flows()[0]
	c := l.login(t)
	exchange := x.next()
	k, err := library.Attach(library.Config{Socket: filepath.Join(l.dir, "attach.sock"), Name: "session"})
	testenv.Must(t, err)
	defer k.Close()
	g, err := k.Give("hits", c)
	testenv.Must(t, err)
	await(t, f, "the connection", func(s status.Flow) bool { return s.Orders.Rules.LoggedIn })
	line := l.dialed(t, 7000)
	m := ask("UNFD", 1, 1)
	if _, err := line.Write(molded(1, m, m, m, m, m)); err != nil { // more than the limit
		t.Fatal(err)
	}
	s := until(t, f, 5)
	want := []string{orderFor(7, m), orderFor(8, m), orderFor(9, m)}
	if got := x.has(3); fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) || s.Dropped["over_rate"] != 2 {
		t.Errorf("the exchange got %q, want %q; %v", got, want, s.Dropped)
	}
	fmt.Fprint(exchange, "filled")
	answers(t, g, "filled")
	testenv.Must(t, g.Close())
	fmt.Fprint(c, "\x00\x06logout")
	if got := x.has(4); got[3] != "logout" {
		t.Errorf("%q", got)
	}
}
