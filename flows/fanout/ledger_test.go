package fanout

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/unifiedd/unifiedd/umem"
)

// model is a simple reference table with the expected results.
type model struct {
	l        refTable
	places   int
	answer   Acknowledge
	messages []*entry // messages with a token or frames that are not returned
	token    uint64
	back     []uint64 // addresses of frames to return
}

type entry struct {
	id     uint32
	token  uint64
	peers  map[int]bool
	need   int
	have   int
	told   bool
	frames []umem.Frame
}

// TestLedger: the reference table returns each frame once, when no peer needs it, and tokens in
// order.
func TestLedger(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &model{places: rapid.IntRange(1, 8).Draw(t, "messages"), answer: rapid.SampledFrom([]Acknowledge{Nobody, Any, Most, Everybody}).Draw(t, "acknowledge")}
		m.l = newRefTable(m.places, 3)
		t.Repeat(map[string]func(*rapid.T){
			"begin": m.begin, "done": m.done, "take": m.take, "acknowledged": m.acknowledged, "": m.check,
		})
	})
}

func (m *model) begin(t *rapid.T) {
	n := rapid.IntRange(1, 3).Draw(t, "frames")
	if len(m.messages) >= m.places {
		if m.l.room(n) {
			t.Fatal("there is room for more than there is")
		}
		return
	}
	if !m.l.room(n) {
		return // frames that were not taken use the room
	}
	m.token++
	e := &entry{token: m.token, peers: map[int]bool{}}
	var bits uint64
	for p := range 3 {
		if rapid.Bool().Draw(t, "peer") {
			e.peers[p] = true
			bits |= 1 << p
		}
	}
	e.need = m.answer.need(len(e.peers))
	for i := range n {
		e.frames = append(e.frames, umem.Frame{Addr: m.token*10 + uint64(i), Len: uint32(i)})
	}
	e.id = m.l.begin(e.frames, e.token, bits, e.need)
	e.told = e.need == 0
	m.messages = append(m.messages, e)
	m.settle()
}

func (m *model) done(t *rapid.T) {
	var under []*entry
	for _, e := range m.messages {
		if len(e.peers) > 0 {
			under = append(under, e)
		}
	}
	if len(under) == 0 {
		return
	}
	e := rapid.SampledFrom(under).Draw(t, "message")
	for p := range 3 {
		if !e.peers[p] {
			continue
		}
		spares := e.have >= e.need
		if m.l.spares(e.id) != spares {
			t.Fatalf("message %d spares one: %v", e.token, !spares)
		}
		acknowledged := !spares || rapid.Bool().Draw(t, "acknowledged")
		delete(e.peers, p)
		if acknowledged {
			e.have++
		}
		m.l.done(e.id, p, acknowledged)
		break
	}
	m.settle()
}

// settle adds the frames that no peer needs to back, and removes finished messages.
func (m *model) settle() {
	rest := m.messages[:0]
	for _, e := range m.messages {
		if len(e.peers) == 0 {
			for _, f := range e.frames {
				m.back = append(m.back, f.Addr)
			}
			e.frames = nil
		}
		if len(e.peers) > 0 || !e.told {
			rest = append(rest, e)
		}
	}
	m.messages = rest
}

func (m *model) take(t *rapid.T) {
	dst := make([]umem.Frame, rapid.IntRange(0, 5).Draw(t, "most"))
	n := m.l.take(dst)
	if n != min(len(dst), len(m.back)) {
		t.Fatalf("%d frames of %d", n, len(m.back))
	}
	for i, f := range dst[:n] {
		if f.Addr != m.back[i] || uint64(f.Len) != f.Addr%10 {
			t.Fatalf("frame %+v, want %d", f, m.back[i])
		}
	}
	m.back = m.back[n:]
}

func (m *model) acknowledged(t *rapid.T) {
	dst := make([]uint64, rapid.IntRange(0, 3).Draw(t, "most"))
	n := m.l.acknowledged(dst)
	for i := 0; ; i++ {
		e := m.firstUntold()
		if e == nil || e.have < e.need || i == len(dst) {
			if n != i {
				t.Fatalf("%d tokens, want %d", n, i)
			}
			m.settle()
			return
		}
		if i >= n || dst[i] != e.token {
			t.Fatalf("tokens %v, want %d next", dst[:n], e.token)
		}
		e.told = true
	}
}

func (m *model) firstUntold() *entry {
	for _, e := range m.messages {
		if !e.told {
			return e
		}
	}
	return nil
}

func (m *model) check(t *rapid.T) {
	held := len(m.back)
	for _, e := range m.messages {
		held += len(e.frames)
	}
	if m.l.held != held || m.l.idle() != (held == 0 && len(m.messages) == 0) {
		t.Fatalf("%d frames are held, want %d; idle: %v of %d messages", m.l.held, held, m.l.idle(), len(m.messages))
	}
	for p := range 3 {
		spares := true
		for _, e := range m.messages {
			if e.need > 0 && !e.told && e.peers[p] && e.have < e.need {
				spares = false
			}
		}
		if m.l.sparesAll(p) != spares {
			t.Fatalf("peer %d can be spared: %v, want %v", p, !spares, spares)
		}
	}
}
