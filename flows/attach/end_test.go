package attach

import (
	"log/slog"
	"os"
	"strconv"
	"testing"

	"github.com/unifiedd/unifiedd/flows/attach/wire"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
)

// rig is an end with an open port, and the program's side of its rings.
type rig struct {
	region *umem.Region
	holder *umem.Holder
	end    *End
	port   *Port
	rings  [wire.Rings]*wire.Ring
	back   []umem.Frame
}

// newRig opens a port of an end with a role. Everything runs on the test's goroutine.
func newRig(t testing.TB, role wire.Role) *rig {
	region, err := umem.Open(umem.Config{Size: 4 << 20, Pages: umem.Ordinary, Slices: []umem.SliceConfig{{Name: "p", In: 1 << 20, Out: 1 << 20}}})
	testenv.Must(t, err)
	hub, err := Open(Config{Region: region, Log: slog.New(slog.DiscardHandler), Programs: []ProgramConfig{{Name: "p", User: strconv.Itoa(os.Getuid())}}})
	testenv.Must(t, err)
	book := region.NewBook("test")
	r := &rig{region: region}
	r.holder, err = book.NewHolder(umem.OwnerWorker, "test")
	testenv.Must(t, err)
	r.end, err = hub.NewEnd(EndConfig{
		Flow: "f", Program: "p", Role: role, Entries: 64, Longest: 1024, Worker: r.holder, Do: func(f func() error) error { return f() },
		Closed: func(back []umem.Frame) { r.back = back },
	})
	testenv.Must(t, err)
	if role == wire.Send {
		own := make([]umem.Frame, 64)
		r.holder.TakeFrom(r.end.Part(), own)
		r.end.SetFrames(own)
	}
	port, files, err := newPort(1, 7, 64)
	testenv.Must(t, err)
	if _, err := r.end.install(port); err != nil {
		t.Fatal(err)
	}
	r.port = port
	for n := range r.rings {
		r.rings[n] = wire.NewRing(port.memory, n, 64, false)
	}
	t.Cleanup(func() {
		r.end.uninstall(port)
		for _, err := range []error{port.free(), files.close(), r.end.Close()} {
			testenv.Check(t, err)
		}
		r.holder.Close()
		if c, err := region.Audit(); err != nil || c.Of(umem.OwnerPool) != region.Frames() {
			t.Errorf("at the end: %v, %v", c, err)
		}
		for _, err := range []error{book.Close(), region.Close()} {
			testenv.Check(t, err)
		}
	})
	return r
}

// submitOne passes one message through the rings: the program submits it, and gets its frame back.
func (r *rig) submitOne(sequence uint64, taken []Submitted) bool {
	done, submitted := r.rings[wire.RingDone], r.rings[wire.RingSubmitted]
	if n, ok := done.Waiting(); n == 0 || !ok {
		return false
	}
	e := done.Get()
	done.Advance()
	e.Length, e.Sequence = 64, sequence
	submitted.Put(&e)
	submitted.Publish()
	if r.end.Take(taken) != 1 || taken[0].Sequence != sequence {
		return false
	}
	r.end.Done(taken[0].Frame.Addr, taken[0].Session, sequence, sequence, wire.None)
	r.end.Kick()
	return true
}

// giveOne passes one frame through the rings: the program gets it, and releases it.
func (r *rig) giveOne(f umem.Frame, back []umem.Frame) bool {
	received, released := r.rings[wire.RingReceived], r.rings[wire.RingReleased]
	if r.end.Room() == 0 {
		return false
	}
	r.end.Give(f, 1, 2, 3)
	r.end.Kick()
	if n, ok := received.Waiting(); n != 1 || !ok {
		return false
	}
	e := received.Get()
	received.Advance()
	released.Put(&e)
	released.Publish()
	return r.end.Released(back) == 1
}

// TestHotPath: passing a message in either direction allocates nothing.
func TestHotPath(t *testing.T) {
	r := newRig(t, wire.Send)
	taken, sequence := make([]Submitted, 64), uint64(0)
	if n := testing.AllocsPerRun(1000, func() {
		if sequence++; !r.submitOne(sequence, taken) {
			t.Fatalf("message %d does not pass: %v", sequence, r.port.why())
		}
	}); n != 0 {
		t.Errorf("a message of the program takes %v allocations", n)
	}
	r = newRig(t, wire.Receive)
	var f [1]umem.Frame
	r.holder.TakeFrom(r.end.Part(), f[:])
	back := make([]umem.Frame, 64)
	if n := testing.AllocsPerRun(1000, func() {
		f[0].Len = 100
		if !r.giveOne(f[0], back) || back[0].Addr != f[0].Addr {
			t.Fatalf("a message does not pass: %v", r.port.why())
		}
	}); n != 0 {
		t.Errorf("a message to the program takes %v allocations", n)
	}
}

// TestNoPortBeforeBegin: a program that asks while the flow is being opened is told that there is no such flow, and asks
// again. A port that opened then would have no frames, for ever.
func TestNoPortBeforeBegin(t *testing.T) {
	for _, role := range []wire.Role{wire.Send, wire.Receive, wire.Request} {
		r := newRig(t, role)
		s := newSession(r.end.hub, nil)
		s.program = r.end.program
		ask := func() *wire.Refusal {
			_, _, _, why := s.makePort(t.Context(), &wire.Open{Flow: "f", Role: role})
			return why
		}
		if why := ask(); why == nil || why.Reason != wire.NoSuchFlow {
			t.Errorf("%v: before Begin: %v", role, why)
		}
		r.end.Begin()
		if why := ask(); why == nil || why.Reason != wire.Busy { // the rig has its port
			t.Errorf("%v: after Begin: %v", role, why)
		}
	}
}

// TestUninstall: what a program has is with the flow when its port closes, and an entry for the earlier port means
// nothing to the next one.
func TestUninstall(t *testing.T) {
	r := newRig(t, wire.Receive)
	fs := make([]umem.Frame, 5)
	r.holder.TakeFrom(r.end.Part(), fs)
	for i := range fs {
		fs[i].Len = 10
		r.end.Give(fs[i], uint64(i+1), 0, 0)
	}
	r.end.Kick()
	e := r.rings[wire.RingReceived].Get()
	if s := r.end.Stats(); s.Out != 5 || s.Given != 5 || !s.Open {
		t.Errorf("before: %+v", s)
	}
	r.end.uninstall(r.port)
	if s := r.end.Stats(); s.Out != 0 || s.Open || len(r.back) != 5 || r.end.Room() != 0 {
		t.Errorf("afterwards: %+v, %d frames came back", s, len(r.back))
	}
	next, files, err := newPort(2, 7, 64)
	testenv.Must(t, err)
	defer files.close()
	defer next.free()
	if _, err := r.end.install(next); err != nil {
		t.Fatal(err)
	}
	old := wire.NewRing(next.memory, wire.RingReleased, 64, false)
	old.Put(&e)
	old.Publish()
	var back [1]umem.Frame
	if n := r.end.Released(back[:]); n != 0 || next.why() != wire.BadDescriptor {
		t.Errorf("%d frames are released by an entry of an earlier port: %v", n, next.why())
	}
	r.end.uninstall(next)
}

func BenchmarkSubmit(b *testing.B) {
	r := newRig(b, wire.Send)
	taken, sequence := make([]Submitted, 64), uint64(0)
	for b.Loop() {
		if sequence++; !r.submitOne(sequence, taken) {
			b.Fatal("a message does not pass")
		}
	}
}

func BenchmarkGive(b *testing.B) {
	r := newRig(b, wire.Receive)
	var f [1]umem.Frame
	r.holder.TakeFrom(r.end.Part(), f[:])
	f[0].Len = 100
	back := make([]umem.Frame, 64)
	for b.Loop() {
		if !r.giveOne(f[0], back) {
			b.Fatal("a message does not pass")
		}
	}
}
