package flows

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// moldText is the message with a number.
func moldText(n uint64) string { return fmt.Sprintf("message %d%*s", n, n%90, "") }

// mold makes a packet of MoldUDP64.
func mold(session string, first uint64, count int) []byte {
	b := binary.BigEndian.AppendUint64(fmt.Appendf(nil, "%-10s", session), first)
	b = binary.BigEndian.AppendUint16(b, uint16(count))
	for i := range uint64(count) {
		m := moldText(first + i)
		b = append(binary.BigEndian.AppendUint16(b, uint16(len(m))), m...)
	}
	return b
}

// dialed opens a socket from end A to a port of end B.
func (l *lab) dialed(t *testing.T, port int) (c *net.UDPConn) {
	t.Helper()
	l.A.Do(t, func() {
		var err error
		c, err = net.DialUDP("udp", nil, &net.UDPAddr{IP: l.B.IP.AsSlice(), Port: port})
		testenv.Must(t, err)
	})
	t.Cleanup(func() { c.Close() })
	return c
}

// answers runs a retransmission server at end A that has all messages but some.
func (l *lab) answers(t *testing.T, session string, without map[uint64]bool) {
	t.Helper()
	var c *net.UDPConn
	l.A.Do(t, func() {
		var err error
		c, err = net.ListenUDP("udp", &net.UDPAddr{IP: l.A.IP.AsSlice(), Port: 7100})
		testenv.Must(t, err)
	})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for b := make([]byte, 2048); ; {
			n, from, err := c.ReadFromUDP(b)
			if err != nil {
				return
			}
			if n != 20 || string(b[:10]) != fmt.Sprintf("%-10s", session) {
				t.Errorf("a request is %q", b[:n])
				continue
			}
			first, count := binary.BigEndian.Uint64(b[10:]), binary.BigEndian.Uint16(b[18:])
			for i := range uint64(count) {
				if !without[first+i] {
					_, _ = c.WriteToUDP(mold(session, first+i, 1), from)
				}
			}
		}
	}()
	t.Cleanup(func() { c.Close(); <-ended })
}

// TestMold: a program gets the messages of a feed once and in order, of two lines that each lose, repeat and swap
// packets. What neither line had comes from the retransmission server, and what that does not have is declared. The
// counters are exact. Packets that lie give nothing.
func TestMold(t *testing.T) {
	l := newLab(t, testenv.PairOptions{})
	f := l.start(t, fmt.Sprintf(`
region: {size: 64MiB}
attach: {socket: %s/attach.sock, programs: [{name: reader, user: "%d", in: 8MiB}]}
flows:
  - name: md
    from: {interface: %s, ring: 512, filter: udp dst portrange 7000-7001}
    stages:
      - moldudp64:
          lines: [{name: a, address: %[4]s, port: 7000}, {name: b, address: %[4]s, port: 7001}]
          gap: 400ms
          ask: 50ms
          server: "%[5]s:7100"
    to: {attach: reader, queue: 512, policy: wait}
`, l.dir, os.Getuid(), l.B.Ifname, l.B.IP, l.A.IP), Options{}).Flows()[0]
	k, r := l.receiver(t)
	defer k.Close()
	const last = 3000
	random := rand.New(rand.NewPCG(1, 2))
	gone := map[uint64]bool{700: true, 701: true, 2400: true} // nobody has them
	l.answers(t, "TODAY", gone)
	lines := [2]*net.UDPConn{l.dialed(t, 7000), l.dialed(t, 7001)}
	asked := uint64(0) // messages that only the server has
	go func() {
		var late [][]byte
		for n := uint64(1); n <= last; {
			count := min(1+random.Uint64N(8), last+1-n)
			if n <= 700 && n+count > 700 { // these packets end and begin at what is gone
				count = max(700-n, 2)
			} else if n <= 2400 && n+count > 2400 {
				count = max(2400-n, 1)
			}
			p := mold("TODAY", n, int(count))
			both := n > 1 && n+count <= last && random.IntN(50) == 0
			if gone[n] {
				both = true
			} else if both {
				asked += count
			}
			for i, line := range lines {
				switch chance := random.IntN(100); {
				case both, n > 1 && chance == 0 && i == int(n%2): // one line at a time
				case chance < 5:
					_, _ = line.Write(p)
					_, _ = line.Write(p)
				case chance < 10 && i == 1 && n+count <= last:
					late = append(late, p)
				default:
					_, _ = line.Write(p)
				}
			}
			if len(late) > 3 {
				for _, p := range late {
					_, _ = lines[1].Write(p)
				}
				late = nil
			}
			n += count
			_, _ = lines[0].Write([]byte("TODAY     lies"))
			time.Sleep(300 * time.Microsecond)
		}
	}()
	for n := uint64(1); n <= last; n++ {
		if gone[n] {
			continue
		}
		m := get(t, r, 1)
		if string(m[0].Data) != moldText(n) {
			t.Fatalf("message %d is %q", n, m[0].Data)
		}
		r.Release(m)
	}
	s := await(t, f, "the counters", func(s status.Flow) bool { return s.Feed.Messages == last-3 }).Feed
	wins := s.Lines[0].Wins + s.Lines[1].Wins
	if s.Session != "TODAY" || s.Lost != 3 || s.Gaps != 2 || s.Sessions != 1 || wins+s.Lines[2].Wins != s.Messages || s.Lines[2].Wins != asked || s.Requests == 0 || s.Unsent != 0 {
		t.Errorf("it counts %+v; the server had %d", *s, asked)
	}
	if s.Lines[0].Refused["short"] == 0 || s.Lines[1].Duplicates == 0 || s.Lines[1].Late == 0 || s.Lines[0].Missing == 0 {
		t.Errorf("the lines are %+v", s.Lines)
	}
	t.Logf("%+v", *s)
}

// TestMoldToPeers: an RDMA peer gets each message of two lines once and in order, one message of the feed in each
// message, though each line loses every third packet.
func TestMoldToPeers(t *testing.T) {
	l := newRDMALab(t)
	from, to := l.side(t)
	a := l.newStation(t).newCollector(t, "127.0.0.1:0")
	f := l.start(t, fmt.Sprintf(`
region: {size: 96MiB}
flows:
  - name: feed
    from: {interface: %s, ring: 2048, filter: udp dst portrange 7000-7001}
    stages: [{moldudp64: {lines: [{name: a, address: %s, port: 7000}, {name: b, address: %[2]s, port: 7001}]}}]
    to: {rdma: "roce:%[3]s", peers: [{name: a, address: "%[4]s", flow: sink}], queue: 256}
`, to.Ifname, to.IP, l.B.Ifname, a.address()), Options{}).Flows()[0]
	await(t, f, "the peer", func(s status.Flow) bool { return s.Sends.Peers[0].Credit > 0 })
	const packets, each = 300, 5
	var frames [][]byte
	for n := range uint64(packets) {
		payload := mold("TODAY", n*each+1, each)
		for line := range uint16(2) {
			if n%3 == uint64(line) && n > 0 && n < packets-1 {
				continue
			}
			frame := testenv.UDP(&from, &to, 7000+line, 0, 42+len(payload))
			copy(frame[40:], []byte{0, 0}) // no checksum
			copy(frame[42:], payload)
			frames = append(frames, frame)
		}
	}
	testenv.SendRaw(t, &from, frames, testenv.SendOptions{Taken: func() uint64 { st := f.Status(); return st.Packets + lost(st) }})
	for i, m := range a.await(t, packets*each) {
		if string(m) != moldText(uint64(i+1)) {
			t.Fatalf("message %d is %q", i+1, m)
		}
	}
	if s := f.Status(); s.Feed.Messages != packets*each || s.Feed.Lost != 0 || s.Sends.Peers[0].Offered != packets*each || s.CopiedBytes["feed"] == 0 {
		t.Errorf("it counts %+v, and %+v", *s.Feed, s.Sends.Peers[0])
	}
}

// TestFeedBeginsAgain: a program gets all messages of a sender that was started again, and counts from 1 again, on two
// lines that each lack some.
func TestFeedBeginsAgain(t *testing.T) {
	for name, form := range feedForms {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, testenv.PairOptions{})
			f := l.start(t, fmt.Sprintf(`
region: {size: 64MiB}
attach: {socket: %s/attach.sock, programs: [{name: reader, user: "%d", in: 8MiB}]}
flows:
  - name: md
    from: {interface: %s, ring: 512, filter: udp dst portrange 7000-7001}
    stages: [{%s lines: [{name: a, address: %[5]s, port: 7000}, {name: b, address: %[5]s, port: 7001}]}}]
    to: {attach: reader, queue: 512, policy: wait}
`, l.dir, os.Getuid(), l.B.Ifname, form.stage, l.B.IP), Options{}).Flows()[0]
			k, r := l.receiver(t)
			defer k.Close()
			lines := [2]*net.UDPConn{l.dialed(t, 7000), l.dialed(t, 7001)}
			const lives, last = 3, 500
			for life := range lives {
				go func() {
					for n := uint64(1); n <= last; n++ {
						for i, line := range lines {
							if (n%7 == 3) == (i == 0) && n > 1 {
								continue // each line lacks some
							}
							_, _ = line.Write(form.packet("TODAY", n, 1))
						}
						time.Sleep(100 * time.Microsecond)
					}
				}()
				for n := uint64(1); n <= last; n++ {
					m := get(t, r, 1)
					if string(m[0].Data) != form.message("TODAY", n) {
						t.Fatalf("message %d of life %d is %q", n, life, m[0].Data)
					}
					r.Release(m)
				}
				time.Sleep(50 * time.Millisecond) // the sender is away
			}
			if s := f.Status().Feed; s.Restarts != lives-1 || s.Sessions != lives || s.Lost != 0 || s.Messages != lives*last {
				t.Errorf("it counts %+v", s)
			}
		})
	}
}
