package stream

import (
	"testing"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/umem"
)

// TestReject: the receiver does not take a message that the flow rejects, nor any later one. It
// sends the reason to the sender, which sends these messages again on its next connection.
func TestReject(t *testing.T) {
	g := newRig(t)
	c := receiverConfig()
	k := g.far.newSink(c, c.Peers*c.Window)
	rejected := 0
	k.on(func() {
		k.looks = func(f umem.Frame) {
			d, _ := protocol.ParseData(k.region.Bytes(f))
			session := k.region.Side(f).Queue
			switch {
			case rejected == 0 && d.Sequence == 3:
				rejected++
				k.r.Reject(session, d.Sequence, protocol.BadLength)
				k.r.Reject(session, 2, protocol.BadLength) // has no effect: message 2 is acknowledged
			case rejected == 0 || k.next[session]+1 == d.Sequence:
				k.look(f)
			}
		}
	})
	p := g.near.dial(k.address, hello(7))
	p.send(5, 50)
	if status, text := p.ended(); text != protocol.BadLength.Error() || status != protocol.BadLength && status != protocol.None {
		t.Errorf("the sender hears %v and %q", status, text)
	}
	if p.acked > 2 {
		t.Errorf("message %d is acknowledged", p.acked)
	}
	p = g.near.dial(k.address, hello(7))
	if p.next != 3 {
		t.Fatalf("message %d is wanted next", p.next)
	}
	p.send(3, 50)
	p.awaitAcked()
	k.on(func() {
		if s := k.r.sessions.byID[7]; s.acknowledged != 5 || s.taken != 5 {
			t.Errorf("the session is %+v", s)
		}
	})
	if st := k.stats(); st.Refused[protocol.BadLength] != 1 {
		t.Errorf("refused: %v", st.Refused)
	}
}
