package program

import (
	"log/slog"
	"os"
	"strconv"
	"testing"

	"github.com/unifiedd/unifiedd/flows/attach"
	"github.com/unifiedd/unifiedd/flows/attach/wire"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
)

// TestSessionOfAnotherProgram: a program that gives the session of another one, as it is in their common log or as the other
// one gave it, does not continue it: the other's messages would be taken for duplicates. A program continues its own.
func TestSessionOfAnotherProgram(t *testing.T) {
	region, err := umem.Open(umem.Config{Size: 4 << 20, Pages: umem.Ordinary, Slices: []umem.SliceConfig{{Name: "a", Out: 1 << 20}, {Name: "b", Out: 1 << 20}}})
	testenv.Must(t, err)
	self := strconv.Itoa(os.Getuid())
	hub, err := attach.Open(attach.Config{Region: region, Log: slog.New(slog.DiscardHandler), Programs: []attach.ProgramConfig{{Name: "a", User: self}, {Name: "b", User: self}}})
	testenv.Must(t, err)
	book := region.NewBook("test")
	worker, err := book.NewHolder(umem.OwnerWorker, "test")
	testenv.Must(t, err)
	open := func(program string, relayed bool) *Source {
		end, err := hub.NewEnd(attach.EndConfig{Flow: "to-log", Program: program, Role: wire.Send, Entries: 64, Longest: 64, Worker: worker, Do: func(f func() error) error { return f() }})
		testenv.Must(t, err)
		testenv.Must(t, end.Close())
		return &Source{end: end, relayed: relayed}
	}
	a, b := open("a", true), open("b", true)
	inLog := a.numberOf(7)
	for _, session := range []uint64{7, inLog} {
		if got := b.numberOf(session); got == inLog {
			t.Errorf("another program that gives the session %x continues it", session)
		}
	}
	if again := open("a", true).numberOf(7); again != inLog {
		t.Errorf("the same program does not continue its session: %x, not %x", again, inLog)
	}
	if a.numberOf(8) == inLog || a.numberOf(7) != inLog {
		t.Error("sessions of a program are not told apart")
	}
	if got := open("a", false).numberOf(7); got != 7 {
		t.Errorf("a log of the daemon's own has session %x", got)
	}
	worker.Close()
	testenv.Must(t, book.Close(), region.Close())
}
