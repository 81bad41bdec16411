package program

import (
	"log/slog"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/attach"
	"github.com/unifiedd/unifiedd/flows/attach/wire"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
)

// TestLent: a message that enough peers have is not acknowledged while a peer still needs its frame, and neither are
// those behind it: with the acknowledgement the program has the frame again, and may change it.
func TestLent(t *testing.T) {
	region, err := umem.Open(umem.Config{Size: 2 << 20, Pages: umem.Ordinary, Slices: []umem.SliceConfig{{Name: "p", Out: 1 << 20}}})
	testenv.Must(t, err)
	hub, err := attach.Open(attach.Config{Region: region, Log: slog.New(slog.DiscardHandler), Programs: []attach.ProgramConfig{{Name: "p", User: strconv.Itoa(os.Getuid())}}})
	testenv.Must(t, err)
	book := region.NewBook("test")
	worker, err := book.NewHolder(umem.OwnerWorker, "test")
	testenv.Must(t, err)
	end, err := hub.NewEnd(attach.EndConfig{Flow: "f", Program: "p", Role: wire.Send, Entries: 64, Longest: 1024, Worker: worker, Do: func(f func() error) error { return f() }})
	testenv.Must(t, err)
	defer func() {
		testenv.Check(t, end.Close())
		worker.Close()
		testenv.Check(t, book.Close())
		testenv.Check(t, region.Close())
	}()
	frames := make([]umem.Frame, 3)
	if n := worker.TakeFrom(end.Part(), frames); n != 3 {
		t.Fatalf("%d frames", n)
	}
	s := &Source{region: region, end: end, pending: make([]pending, 4), lent: make([]bool, end.Part().Size()/uint64(region.FrameSize()))}
	safe := uint64(0)
	s.safe = func() uint64 { return safe }
	messages := make([]attach.Submitted, 3)
	for i := range messages {
		messages[i] = attach.Submitted{Frame: umem.Frame{Addr: frames[i].Addr + 100, Len: 10}, Session: 7, Sequence: uint64(i + 1)}
	}
	s.batch.Frames = make([]umem.Frame, 4)
	s.number(messages, time.Now())
	s.batch.Drop(3) // peers have them
	for _, step := range []struct {
		free []umem.Frame // that no peer needs any more
		safe uint64
		want uint64
	}{
		{nil, 2, 0},
		{[]umem.Frame{messages[1].Frame}, 2, 0},
		{[]umem.Frame{messages[0].Frame}, 2, 2},
		{[]umem.Frame{messages[2].Frame}, 2, 2}, // not acknowledged by enough peers
		{nil, 3, 3},
	} {
		s.free.Push(step.free...)
		safe = step.safe
		s.Acknowledge(time.Now())
		s.Supply()
		if s.acknowledged != step.want || s.free.Len() != 0 {
			t.Errorf("free %v, enough peers have %d: %d acknowledged, want %d; %d frames lie there", step.free, step.safe, s.acknowledged, step.want, s.free.Len())
		}
	}
	if n := testing.AllocsPerRun(100, func() {
		s.number(messages, time.Now())
		s.batch.Drop(3)
		s.free.Push(messages[0].Frame, messages[1].Frame, messages[2].Frame)
		safe += 3
		s.Acknowledge(time.Now())
	}); n >= 1 {
		t.Errorf("a batch allocates %v times", n)
	}
}
