package flows

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/capfile"
	"github.com/unifiedd/unifiedd/internal/pcapng"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/captures"
)

// feedForm is a form of feeds: the stage for it, and how its packets are made.
type feedForm struct {
	stage   string
	most    uint64 // messages in a packet
	packet  func(session string, first uint64, count int) []byte
	message func(session string, n uint64) string
}

// moldOrEnd makes a packet of MoldUDP64. Without messages, it ends the session.
func moldOrEnd(session string, first uint64, count int) []byte {
	b := mold(session, first, count)
	if count == 0 {
		b[18], b[19] = 255, 255
	}
	return b
}

// plainText is the plain packet with a number.
func plainText(session string, n uint64) string {
	b := binary.LittleEndian.AppendUint32([]byte("FEED.."), uint32(n))
	return string(b) + session + moldText(n)
}

var feedForms = map[string]feedForm{
	"moldudp64": {
		stage: "moldudp64: {", most: 6, packet: moldOrEnd, message: func(_ string, n uint64) string { return moldText(n) },
	},
	"counter": {
		stage: "counter: {offset: 6, width: 4, order: little, ", most: 1, message: plainText,
		packet: func(session string, first uint64, _ int) []byte { return []byte(plainText(session, first)) },
	},
}

// feedPacket is a packet of a line. Without messages, it ends the session.
type feedPacket struct {
	session      string
	first, count uint64
}

// feedScript is what two lines send.
type feedScript struct {
	lines [2][]feedPacket
	order []int // of which line the next packet is
}

// packed returns messages from first to last in packets of a line.
func (f *feedForm) packed(random *rand.Rand, session string, first, last uint64) (all []feedPacket) {
	for n := first; n <= last; {
		count := min(1+random.Uint64N(f.most), last+1-n)
		all = append(all, feedPacket{session, n, count})
		n += count
	}
	return all
}

// damaged has a line lose 1 % of its packets, and repeat and reorder some. Its first two and last two stay.
func damaged(random *rand.Rand, all []feedPacket) (left []feedPacket) {
	for i, p := range all {
		inside := i > 1 && i < len(all)-2
		if inside && random.IntN(100) == 0 {
			continue
		}
		left = append(left, p)
		if random.IntN(50) == 0 {
			left = append(left, p)
		}
	}
	for i := 4; i+5 < len(left); i++ {
		if random.IntN(50) == 0 {
			left[i], left[i+2] = left[i+2], left[i]
		}
	}
	return left
}

// inTurn sends both lines, b so many packets behind a.
func (s *feedScript) inTurn(a, b []feedPacket, behind int) {
	for i := 0; i < len(a) || i-behind < len(b); i++ {
		if i < len(a) {
			s.order, s.lines[0] = append(s.order, 0), append(s.lines[0], a[i])
		}
		if k := i - behind; k >= 0 && k < len(b) {
			s.order, s.lines[1] = append(s.order, 1), append(s.lines[1], b[k])
		}
	}
}

// scripts makes what lines send, by name.
var scripts = map[string]func(f *feedForm, random *rand.Rand) feedScript{
	"dead": func(f *feedForm, random *rand.Rand) (s feedScript) {
		s.inTurn(f.packed(random, "DAY", 1, 900), nil, 0)
		return s
	},
	"stuck": func(f *feedForm, random *rand.Rand) (s feedScript) {
		a := f.packed(random, "DAY", 1, 900)
		b := make([]feedPacket, len(a))
		for i := range b {
			b[i] = a[min(i, 5)]
		}
		s.inTurn(a, b, 0)
		return s
	},
	"damaged": func(f *feedForm, random *rand.Rand) (s feedScript) {
		a, b := damaged(random, f.packed(random, "DAY", 1, 1800)), damaged(random, f.packed(random, "DAY", 1, 1800))
		s.inTurn(without(a, 700), without(b, 700), 12) // what nobody has is lost
		return s
	},
	// At midnight, line a is in the new session while line b still sends the old one.
	"midnight": func(f *feedForm, random *rand.Rand) (s feedScript) {
		const last = 3_000_000
		s.inTurn(damaged(random, f.packed(random, "NIGHT", last-400, last)), damaged(random, f.packed(random, "NIGHT", last-400, last)), 0)
		if f.most > 1 {
			s.inTurn([]feedPacket{{"NIGHT", last + 1, 0}}, []feedPacket{{"NIGHT", last + 1, 0}}, 0)
		}
		morning := f.packed(random, "MORNING", 1, 400)
		s.inTurn(damaged(random, morning), append([]feedPacket{{"NIGHT", last - 2, 1}, {"NIGHT", last - 1, 1}, {"NIGHT", last, 1}}, damaged(random, morning)...), 3)
		return s
	},
}

// expected is what must come of a script.
type expected struct {
	messages       []string
	lost, repeats  uint64
	missing, late  [2]uint64
	old            [2]uint64 // packets of a session that has ended
	ends, sessions uint64
}

// expect works out what must come of a script, if each message has had its chance before a gap is declared.
func (s *feedScript) expect(f *feedForm) (e expected) {
	had, seen := map[uint64]bool{}, map[string]bool{}
	session, first, high, came := "", uint64(0), uint64(0), uint64(0)
	var next [2]uint64
	var began [2]bool
	end := func() {
		for n := first; n < high; n++ {
			if had[n] {
				e.messages = append(e.messages, f.message(session, n))
			} else {
				e.lost++
			}
		}
	}
	var at [2]int
	for _, l := range s.order {
		p := s.lines[l][at[l]]
		at[l]++
		after := p.first + p.count
		if p.session != session {
			if seen[p.session] {
				e.old[l]++
				continue
			}
			end()
			session, first, high, began, had = p.session, p.first, p.first, [2]bool{}, map[uint64]bool{}
			seen[session] = true
			e.sessions++
		}
		switch {
		case !began[l]:
			began[l], next[l] = true, after
		case p.first >= next[l]:
			e.missing[l] += p.first - next[l]
			next[l] = after
		default:
			e.late[l] += p.count
			next[l] = max(next[l], after)
		}
		came, high = came+p.count, max(high, after)
		if p.count == 0 {
			e.ends = 1 // that of one session
		}
		for n := p.first; n < after; n++ {
			had[n] = true
		}
	}
	end()
	e.repeats = came - uint64(len(e.messages))
	return e
}

// without removes the packets with a message.
func without(all []feedPacket, n uint64) (left []feedPacket) {
	for _, p := range all {
		if n < p.first || n >= p.first+p.count {
			left = append(left, p)
		}
	}
	return left
}

// play sends the packets of a script.
func (l *lab) play(s *feedScript, f *feedForm, lines [2]*net.UDPConn) {
	var at [2]int
	for _, line := range s.order {
		p := s.lines[line][at[line]]
		at[line]++
		_, _ = lines[line].Write(f.packet(p.session, p.first, int(p.count)))
		time.Sleep(150 * time.Microsecond)
	}
}

// counted reports whether a flow has counted all messages and all repetitions. It counts a packet when it has received
// it, and what was in it a moment later.
func counted(s *status.Feed, e *expected) bool {
	return s.Messages >= uint64(len(e.messages)) && s.Lines[0].Duplicates+s.Lines[1].Duplicates >= e.repeats
}

// checkFeed compares the counters of a flow with what must have come.
func checkFeed(t *testing.T, s *status.Feed, e *expected) {
	t.Helper()
	a, b := &s.Lines[0], &s.Lines[1]
	if s.Messages != uint64(len(e.messages)) || s.Lost != e.lost || s.Sessions != e.sessions || s.Ends != e.ends || s.Others != 0 || s.Empty != 0 {
		t.Errorf("it counts %+v; want %d messages, %d lost, %d sessions, %d ends", *s, len(e.messages), e.lost, e.sessions, e.ends)
	}
	if a.Wins+b.Wins != s.Messages || a.Duplicates+b.Duplicates != e.repeats {
		t.Errorf("the lines are %+v; want %d duplicates", s.Lines, e.repeats)
	}
	for i, l := range s.Lines[:2] {
		refused := uint64(0)
		for _, n := range l.Refused {
			refused += n
		}
		if l.Missing != e.missing[i] || l.Late != e.late[i] || l.Refused["old_session"] != e.old[i] || refused != e.old[i] {
			t.Errorf("line %s is %+v; want %d missing, %d late, %d of an old session", l.Name, l, e.missing[i], e.late[i], e.old[i])
		}
	}
}

// TestFeedLines: of two lines of which one is dead, or stuck, or which both lose, repeat and reorder packets, or change
// the session at midnight, a program gets each message once and in order, whatever the form of the feed. The counters
// are exact.
func TestFeedLines(t *testing.T) {
	for name, script := range scripts {
		for _, form := range formsOf(name) {
			t.Run(form+" "+name, func(t *testing.T) {
				f := feedForms[form]
				l := newLab(t, testenv.PairOptions{})
				flow := l.start(t, fmt.Sprintf(`
region: {size: 64MiB}
attach: {socket: %s/attach.sock, programs: [{name: reader, user: "%d", in: 8MiB}]}
flows:
  - name: md
    from: {interface: %s, ring: 1024, filter: udp dst portrange 7000-7001}
    stages:
      - %slines: [{name: a, address: %s, port: 7000}, {name: b, address: %[5]s, port: 7001}], gap: 1500ms, hold: 8192}
    to: {attach: reader, queue: 512, policy: wait}
`, l.dir, os.Getuid(), l.B.Ifname, f.stage, l.B.IP), Options{}).Flows()[0]
				k, r := l.receiver(t)
				defer k.Close()
				s := script(&f, rand.New(rand.NewPCG(7, 7)))
				e := s.expect(&f)
				lines := [2]*net.UDPConn{l.dialed(t, 7000), l.dialed(t, 7001)}
				played := make(chan struct{})
				go func() { defer close(played); l.play(&s, &f, lines) }()
				for i, want := range e.messages {
					m := get(t, r, 1)
					if string(m[0].Data) != want {
						t.Fatalf("message %d of %d is %q, want %q", i+1, len(e.messages), m[0].Data, want)
					}
					r.Release(m)
				}
				<-played
				came := uint64(len(s.order))
				got := await(t, flow, "all packets", func(s status.Flow) bool {
					return s.Packets == came && s.Feed.Lost == e.lost && counted(s.Feed, &e)
				})
				checkFeed(t, got.Feed, &e)
				t.Logf("%d packets, %d messages: %+v", came, len(e.messages), *got.Feed)
			})
		}
	}
}

// formsOf returns the forms that a script has: all of them, in the short form one, by the script's name.
func formsOf(script string) []string {
	all := slices.Sorted(maps.Keys(feedForms))
	if !testing.Short() {
		return all
	}
	return all[len(script)%len(all):][:1]
}

// TestFeedToStorage: the messages of a feed are in the capture file, each once and in order, one a packet, without
// headers and of a link type of their own. Each layout has a form.
func TestFeedToStorage(t *testing.T) {
	for layout, form := range map[string]string{"packed": "moldudp64", "slot": "counter"} {
		f := feedForms[form]
		for _, name := range []string{"damaged", "midnight"} {
			t.Run(layout+" "+name, func(t *testing.T) {
				l := newLab(t, testenv.PairOptions{})
				flow := l.start(t, fmt.Sprintf(`
region: {size: 96MiB}
flows:
  - name: md
    from: {interface: %s, ring: 1024, filter: udp dst portrange 7000-7001}
    stages:
      - %slines: [{name: a, address: %s, port: 7000}, {name: b, address: %[3]s, port: 7001}], gap: 1500ms, hold: 8192}
    to: {file: %[4]s/feed, layout: %[5]s, segment: {size: 32MiB}, flush: 50ms, durable: 100ms}
`, l.B.Ifname, f.stage, l.B.IP, l.dir, layout), Options{}).Flows()[0]
				s := scripts[name](&f, rand.New(rand.NewPCG(9, 9)))
				e := s.expect(&f)
				l.play(&s, &f, [2]*net.UDPConn{l.dialed(t, 7000), l.dialed(t, 7001)})
				all := uint64(len(e.messages))
				got := await(t, flow, "all messages durable", func(s status.Flow) bool {
					return s.Durable.Packets == all && counted(s.Feed, &e)
				})
				checkFeed(t, got.Feed, &e)
				if got.Packets != uint64(len(s.order)) || got.Written.Packets != all || got.CopiedBytes["feed"] != got.Written.Bytes {
					t.Errorf("%d packets were received, %d messages of %d bytes written, %d bytes copied", got.Packets, got.Written.Packets, got.Written.Bytes, got.CopiedBytes["feed"])
				}
				testenv.Must(t, flow.Stop())
				found := captures.Packets(t, l.files(t)...)
				if len(found) != len(e.messages) {
					t.Fatalf("the file has %d messages of %d", len(found), len(e.messages))
				}
				for i, want := range e.messages {
					if string(found[i]) != want {
						t.Fatalf("message %d is %q, want %q", i+1, found[i], want)
					}
				}
				for _, file := range l.files(t) {
					checkMessages(t, file)
				}
			})
		}
	}
}

// checkMessages checks the link type and the times of a file of messages.
func checkMessages(t *testing.T, file string) {
	t.Helper()
	b, err := os.ReadFile(file)
	testenv.Must(t, err)
	var p capfile.Parser
	p.Begin(int64(len(b)))
	last := uint64(0)
	for place, n := p.Want(); n > 0; place, n = p.Want() {
		packet, ok, err := p.Give(b[place:min(len(b), int(place)+n)])
		testenv.Must(t, err)
		if age := time.Since(time.Unix(0, int64(packet.Time))); ok && (packet.Link != pcapng.LinkTypeMessages || !packet.Timed || age < 0 || age > time.Minute) {
			t.Fatalf("%s has the packet %+v", strings.TrimPrefix(file, os.TempDir()), packet)
		}
		last = max(last, packet.Time)
	}
	if last == 0 {
		t.Errorf("%s has no message", file)
	}
}

// TestFeedRefusesDamage: plain packets that are too short, and of nobody, give nothing, and what is much too far ahead
// does not begin a session alone.
func TestFeedRefusesDamage(t *testing.T) {
	l := newLab(t, testenv.PairOptions{})
	f := feedForms["counter"]
	flow := l.start(t, fmt.Sprintf(`
region: {size: 96MiB}
flows:
  - name: md
    from: {interface: %s, ring: 512, filter: udp dst portrange 7000-7002}
    stages:
      - %slines: [{name: a, address: %s, port: 7000}, {name: b, address: %[3]s, port: 7001}]}
    to: {file: %[4]s/feed, segment: {size: 32MiB}, flush: 50ms, durable: 100ms}
`, l.B.Ifname, f.stage, l.B.IP, l.dir), Options{}).Flows()[0]
	a, other := l.dialed(t, 7000), l.dialed(t, 7002)
	for _, p := range []string{plainText("DAY", 1), "short", plainText("DAY", 1_000_000_000), plainText("DAY", 2), plainText("DAY", 2_100_000_000), ""} {
		_, _ = a.Write([]byte(p))
	}
	_, _ = other.Write([]byte(plainText("DAY", 3)))
	s := await(t, flow, "all packets", func(s status.Flow) bool { return s.Packets == 7 && s.Durable.Packets == 2 }).Feed
	if r := s.Lines[0].Refused; s.Messages != 2 || s.Others != 1 || s.Lost != 0 || s.Sessions != 1 || r["short"] != 2 || r["too_far"] != 1 {
		t.Errorf("it counts %+v", *s)
	}
}
