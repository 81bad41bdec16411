package stream

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/umem"
)

// TestSpread: messages go over links that come and go. Each goes over a link with credit, oldest first after a failure. It
// is told of when it is acknowledged and no device reads it any more, and never before.
func TestSpread(t *testing.T) {
	region, err := umem.Open(umem.Config{Size: 4 << 20, Pages: umem.Ordinary})
	testenv.Must(t, err)
	defer region.Close()
	rapid.Check(t, func(t *rapid.T) {
		m := newSpreadModel(region, rapid.IntRange(1, 12).Draw(t, "depth"))
		link := func(t *rapid.T) *link {
			if len(m.s.spread.links) == 0 {
				return nil
			}
			return rapid.SampledFrom(m.s.spread.links).Draw(t, "link")
		}
		t.Repeat(map[string]func(*rapid.T){
			"send":  func(*rapid.T) { m.send() },
			"share": m.share,
			"join":  func(t *rapid.T) { m.join(rapid.IntRange(0, 2).Draw(t, "path")) },
			"complete": func(t *rapid.T) {
				if l := link(t); l != nil {
					m.s.completedBefore(l, l.head+uint64(rapid.IntRange(0, int(l.pending())).Draw(t, "requests")))
				}
			},
			"acknowledge": func(t *rapid.T) { m.acknowledge(t) },
			"credit": func(t *rapid.T) {
				if l := link(t); l != nil {
					l.limit = max(l.limit, m.s.confirm+uint64(rapid.IntRange(0, 6).Draw(t, "window")))
				}
			},
			"fail": func(t *rapid.T) {
				if l := link(t); l != nil {
					l.cause = errFailed
					m.s.removeLink(l)
					m.closing = append(m.closing, l)
				}
			},
			"close": func(*rapid.T) {
				for _, l := range m.closing {
					m.s.completedBefore(l, l.tail)
				}
				m.closing = nil
			},
			"": m.check,
		})
	})
}

// spreadModel is a sender whose links have no queue pairs.
type spreadModel struct {
	s       *Sender
	closing []*link // removed, and still read by their devices
	told    uint64
}

func newSpreadModel(region *umem.Region, depth int) *spreadModel {
	s := &Sender{config: SenderConfig{Depth: depth, Frames: 1, Message: 1024, Active: true}, region: region, out: newOutbox(depth), limits: pairLimits{send: 4, receive: 1}}
	s.own = make([]umem.Frame, s.framesFor(depth, headerBytes))
	for i := range s.own {
		s.own[i].Addr = uint64(i) * uint64(region.FrameSize())
	}
	for i := range 3 {
		s.paths = append(s.paths, &senderPath{number: uint32(i), requests: make([]rdma.SendRequest, sendBatch)})
	}
	s.on = s.paths[0]
	s.pieces = make([]rdma.SGE, depth*2)
	s.spread = &spread{}
	m := &spreadModel{s: s}
	m.join(0)
	return m
}

func (m *spreadModel) send() {
	if m.s.out.room() {
		m.s.Send(nil, 0, 0, 0, m.s.out.last+uint64(m.s.out.waiting.Len())+1)
	}
}

// join adds a link over a path that has none.
func (m *spreadModel) join(path int) {
	p := m.s.paths[path]
	if p.link != nil || slices.ContainsFunc(m.closing, func(l *link) bool { return l.path == p }) {
		return
	}
	m.s.addLink(&link{path: p, numbers: make([]uint64, 4), broken: make(chan struct{}, 1), limit: m.s.confirm})
	m.s.stands()
}

// share posts what can be posted, as submit does with a device that takes everything.
func (m *spreadModel) share(t *rapid.T) {
	before := m.s.sent
	m.s.share()
	lowest := uint64(0) // of those that could be posted
	for _, l := range m.s.spread.links {
		for i := range l.batch {
			number := l.sent(l.tail - uint64(l.batch) + uint64(i))
			if number > l.limit {
				t.Fatalf("message %d goes beyond the limit %d", number, l.limit)
			}
			if lowest == 0 || number < lowest {
				lowest = number
			}
		}
		if l.pending() > uint64(m.s.limits.send) {
			t.Fatalf("%d requests are posted", l.pending())
		}
		l.batch, l.path.elements = 0, l.path.elements[:0]
	}
	if lowest > 0 && lowest <= before && m.s.spread.owes() && m.s.spread.again[m.s.spread.next] < lowest {
		t.Fatalf("message %d went before %d", lowest, m.s.spread.again[m.s.spread.next])
	}
}

// acknowledge acknowledges some of the messages that were posted.
func (m *spreadModel) acknowledge(t *rapid.T) {
	s := m.s
	s.confirm += uint64(rapid.IntRange(0, int(s.sent-s.confirm)).Draw(t, "messages"))
}

// check checks that each message is where it must be.
func (m *spreadModel) check(t *rapid.T) {
	s := m.s
	s.retireRead()
	var results [16]Result
	for _, r := range results[:s.Done(results[:])] {
		if m.told++; r.Token != m.told || r.Token > s.confirm {
			t.Fatalf("message %d is told of after %d, of %d acknowledged", r.Token, m.told-1, s.confirm)
		}
	}
	reads := map[uint64]int{}
	for _, l := range append(slices.Clone(s.spread.links), m.closing...) {
		for i := l.head; i < l.tail; i++ {
			if number := l.sent(i); number <= m.told {
				t.Fatalf("message %d is told of, and a device reads it", number)
			} else {
				reads[number]++
			}
		}
	}
	again := s.spread.again[s.spread.next:]
	if !slices.IsSorted(again) {
		t.Fatalf("%v wait to be posted again", again)
	}
	for number := m.told + 1; number <= s.sent; number++ {
		one := &s.out.slots[s.out.at(number)]
		if int(one.reads) != reads[number] {
			t.Fatalf("%d devices read message %d, and %d are counted", reads[number], number, one.reads)
		}
		alive := slices.ContainsFunc(s.spread.links, func(l *link) bool { return one.over == uint8(l.path.number+1) })
		if number > s.confirm && alive == slices.Contains(again, number) {
			t.Fatalf("message %d is over a link: %v, and waits to be posted again: %v", number, alive, !alive)
		}
	}
}

// TestJoins: a link is added only if it leads to the same receiver, which has what it had. Otherwise the session begins
// again with the next connection.
func TestJoins(t *testing.T) {
	for _, c := range []struct {
		name       string
		link       link
		next       uint64
		want       error
		says       string
		failsOther bool
	}{
		{name: "good", link: link{several: true, receiver: 7}, next: 21},
		{name: "behind what it acknowledged since", link: link{several: true, receiver: 7}, next: 18},
		{name: "the last one", link: link{several: true, receiver: 7}, next: 31},
		{name: "one path", link: link{receiver: 7}, next: 21, says: "one path at a time"},
		{name: "another receiver", link: link{several: true, receiver: 8}, next: 21, says: "not the receiver"},
		{name: "ahead", link: link{several: true, receiver: 7}, next: 32, want: errNonsense},
		{name: "behind what it had", link: link{several: true, receiver: 7}, next: 15, want: errNonsense, failsOther: true},
		{name: "behind what it acknowledged before", link: link{several: true, receiver: 7}, next: 17, want: errNonsense, failsOther: true},
	} {
		first := &link{path: &senderPath{}, broken: make(chan struct{}, 1)}
		s := &Sender{begun: 100, sent: 130, confirm: 120, link: first, spread: &spread{links: []*link{first}, receiver: 7, from: 115}}
		l := c.link
		l.path = &senderPath{address: "there"}
		err := s.joins(&l, &protocol.Hello{Next: c.next, Window: 5}, 18)
		switch {
		case c.want == nil && c.says == "":
			if err != nil || l.path.link != &l || len(s.spread.links) != 2 || l.limit != 100+c.next+4 {
				t.Errorf("%s: %v, %+v", c.name, err, l)
			}
		case err == nil || !errors.Is(err, c.want) && c.want != nil || !strings.Contains(err.Error(), c.says) || len(s.spread.links) != 1 || l.path.link != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.failsOther != (first.cause != nil):
			t.Errorf("%s: the other link has failed with %v", c.name, first.cause)
		}
	}
	over := &Sender{spread: &spread{over: true, receiver: 7}}
	for _, s := range []*Sender{over, {}} {
		if err := s.joins(&link{several: true, receiver: 7}, &protocol.Hello{Next: 1}, 1); err != errTooLate {
			t.Errorf("after the last link: %v", err)
		}
	}
}
