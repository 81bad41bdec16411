package porttest_test

import (
	"errors"
	"flag"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
	"github.com/unifiedd/unifiedd/umem/porttest"
)

// broken is a reference port with one fault: verbs that are set replace the port's own.
type broken struct {
	umem.Port
	supply, recv, send, reap func([]umem.Frame) int
	kick, close              func() error
	fd                       func() int
	limits                   func() umem.Limits
}

func (b *broken) Supply(fs []umem.Frame) int { return b.verb(b.supply, b.Port.Supply)(fs) }
func (b *broken) Recv(fs []umem.Frame) int   { return b.verb(b.recv, b.Port.Recv)(fs) }
func (b *broken) Send(fs []umem.Frame) int   { return b.verb(b.send, b.Port.Send)(fs) }
func (b *broken) Reap(fs []umem.Frame) int   { return b.verb(b.reap, b.Port.Reap)(fs) }

func (b *broken) verb(mine, inner func([]umem.Frame) int) func([]umem.Frame) int {
	if mine != nil {
		return mine
	}
	return inner
}

func (b *broken) Kick() error {
	if b.kick != nil {
		return b.kick()
	}
	return b.Port.Kick()
}

func (b *broken) Close() error {
	if b.close != nil {
		return b.close()
	}
	return b.Port.Close()
}

func (b *broken) FD() int {
	if b.fd != nil {
		return b.fd()
	}
	return b.Port.FD()
}

func (b *broken) Limits() umem.Limits {
	if b.limits != nil {
		return b.limits()
	}
	return b.Port.Limits()
}

// fault breaks both ends of a link. It may use the testing.TB for its state.
type fault struct {
	name  string
	in    string // the case that must detect it
	says  string // a text in that case's message
	crush func(t testing.TB, w *umem.Holder, b *broken)
}

// sink keeps an allocation from being optimised away.
var sink []byte

// faults has one or two faults for each kind of mistake that a case must detect.
var faults = []fault{
	{"loses a drained frame", "Data", "the worker's holder", func(t testing.TB, w *umem.Holder, b *broken) {
		b.reap = func(dst []umem.Frame) int {
			mine := make([]umem.Frame, len(dst))
			return copy(dst, mine[:max(0, b.Port.Reap(mine)-1)])
		}
	}},
	{"gives a frame twice", "Data", "received before", func(t testing.TB, w *umem.Holder, b *broken) {
		b.recv = func(dst []umem.Frame) int {
			n := b.Port.Recv(dst)
			if n > 1 {
				dst[n-1] = dst[0]
			}
			return n
		}
	}},
	{"takes half a chain", "WholeMessages", "part of a message", func(t testing.TB, w *umem.Holder, b *broken) {
		b.send = func(fs []umem.Frame) int {
			if len(fs) == 0 {
				return 0
			}
			cut := append([]umem.Frame(nil), fs...)
			cut[len(cut)-1].Options &^= umem.More
			return b.Port.Send(cut)
		}
	}},
	{"takes more than its limit", "SendRoom", "its limit is", func(t testing.TB, w *umem.Holder, b *broken) {
		b.limits = func() umem.Limits { l := b.Port.Limits(); l.Send -= 8; return l }
	}},
	{"takes more empty frames than its limit", "SupplyRoom", "its limit is", func(t testing.TB, w *umem.Holder, b *broken) {
		b.limits = func() umem.Limits { l := b.Port.Limits(); l.Supply -= 8; return l }
	}},
	{"changes a received byte", "Data", "sent was", func(t testing.TB, w *umem.Holder, b *broken) {
		b.recv = touch(w, b.Port.Recv, func(r *umem.Region, f umem.Frame) { r.Bytes(f)[f.Len-1] ^= 1 })
	}},
	{"writes behind a received view", "Data", "behind a received view", func(t testing.TB, w *umem.Holder, b *broken) {
		b.recv = touch(w, b.Port.Recv, func(r *umem.Region, f umem.Frame) {
			if start, room := r.Start(f); f.Addr+uint64(f.Len) < start+room {
				r.At(f.Addr+uint64(f.Len), 1)[0] ^= 1
			}
		})
	}},
	{"writes into a frame it does not hold", "Counts", "a frame no port holds", func(t testing.TB, w *umem.Holder, b *broken) {
		b.recv = touch(w, b.Port.Recv, func(r *umem.Region, f umem.Frame) {
			const taken = (2*64 + porttest.Spare) * 4096
			r.Data()[(f.Addr+taken/2)%taken] ^= 1
		})
	}},
	{"reorders", "Data", "was due", func(t testing.TB, w *umem.Holder, b *broken) {
		b.recv = func(dst []umem.Frame) int {
			n := b.Port.Recv(dst)
			if n > 1 {
				dst[0], dst[1] = dst[1], dst[0]
			}
			return n
		}
	}},
	{"hides failures", "Failure", "outcome <nil>", func(t testing.TB, w *umem.Holder, b *broken) {
		b.reap = func(dst []umem.Frame) int {
			n := b.Port.Reap(dst)
			for i := range dst[:n] {
				dst[i].Options &= umem.KernelOptions
			}
			return n
		}
	}},
	{"refuses an idle kick", "Kick", "Kick of the receiver", func(t testing.TB, w *umem.Holder, b *broken) {
		b.kick = func() error { return errors.Join(b.Port.Kick(), unix.EAGAIN) }
	}},
	{"blocks while idle", "Idle", "one blocks", func(t testing.TB, w *umem.Holder, b *broken) {
		blocked := make(chan bool)
		t.Cleanup(func() {
			select {
			case <-blocked:
			default:
			}
		})
		b.recv = func(dst []umem.Frame) int {
			n := b.Port.Recv(dst)
			if n == 0 && len(dst) > 0 {
				blocked <- true // until the test is over
				runtime.Goexit()
			}
			return n
		}
	}},
	{"has a descriptor that never tells", "Poll", "did not poll readable", func(t testing.TB, w *umem.Holder, b *broken) {
		fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
		testenv.Must(t, err)
		t.Cleanup(func() { unix.Close(fd) })
		b.fd = func() int { return fd }
	}},
	{"has a descriptor that never falls quiet", "Poll", "fall quiet", func(t testing.TB, w *umem.Holder, b *broken) {
		fd, err := unix.Eventfd(1, unix.EFD_CLOEXEC)
		testenv.Must(t, err)
		t.Cleanup(func() { unix.Close(fd) })
		b.fd = func() int { return fd }
	}},
	{"allocates", "Allocations", "allocated at least", func(t testing.TB, w *umem.Holder, b *broken) {
		b.reap = func(dst []umem.Frame) int {
			n := b.Port.Reap(dst)
			if n > 0 {
				sink = make([]byte, 16)
			}
			return n
		}
	}},
	{"forgets a frame at Close", "Close", "frames inside to the pool", func(t testing.TB, w *umem.Holder, b *broken) {
		kept := keeper(t, w)
		b.close = func() error {
			var one [1]umem.Frame
			w.PassTo(kept, one[:b.Port.Recv(one[:])])
			return b.Port.Close()
		}
	}},
	{"takes frames after Close", "Close", "after Close", func(t testing.TB, w *umem.Holder, b *broken) {
		kept := keeper(t, w)
		b.supply = func(fs []umem.Frame) int {
			if n := b.Port.Supply(fs); n > 0 || b.Port.FD() >= 0 {
				return n
			}
			w.PassTo(kept, fs)
			return len(fs)
		}
	}},
	{"passes no message on after a while", "Random", "nothing more within", func(t testing.TB, w *umem.Holder, b *broken) {
		kicks := 0
		b.kick = func() error {
			if kicks++; kicks > 50 {
				return nil
			}
			return b.Port.Kick()
		}
	}},
}

// keeper is a holder in which a fault hides frames.
func keeper(t testing.TB, w *umem.Holder) *umem.Holder {
	h, err := w.Book().NewHolder(umem.OwnerXDP, "hidden")
	testenv.Must(t, err)
	return h
}

// touch calls do for every frame that a verb returns.
func touch(w *umem.Holder, verb func([]umem.Frame) int, do func(*umem.Region, umem.Frame)) func([]umem.Frame) int {
	return func(dst []umem.Frame) int {
		n := verb(dst)
		for _, f := range dst[:n] {
			do(w.Book().Region(), f)
		}
		return n
	}
}

// openBroken opens the reference port with a fault at both ends.
func openBroken(f fault, waitLimit time.Duration) porttest.Opener {
	whole := openPair(porttest.Config{Landing: 256},
		porttest.Link{Min: 64, Max: 9000, Offset: 512, Landing: 3840, Spoil: spoilLength, Timeout: waitLimit})
	return func(t testing.TB) *porttest.Link {
		l := whole(t)
		a, b := &broken{Port: l.Sender}, &broken{Port: l.Receiver}
		f.crush(t, l.Worker, a)
		f.crush(t, l.Worker, b)
		l.Sender, l.Receiver = a, b
		return l
	}
}

// TestFaultsAreCaught: for each fault the suite fails in the expected case, with the expected message.
func TestFaultsAreCaught(t *testing.T) {
	flag.Set("rapid.nofailfile", "true")
	flag.Set("rapid.shrinktime", "1s")
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			said := outcome(t, f.in, openBroken(f, time.Second/2))
			switch {
			case !said.failed:
				t.Errorf("case %s did not notice", f.in)
			case said.has("panic: umem: frame at") && umem.Invariants:
				// A build with invariants detects some faults before the suite does.
			case !said.has(f.says):
				t.Errorf("case %s failed for another reason, not %q:\n%v", f.in, f.says, said)
			}
		})
	}
}

// TestRecorderPasses: the suite passes for a port without a fault.
func TestRecorderPasses(t *testing.T) {
	sound := fault{crush: func(testing.TB, *umem.Holder, *broken) {}}
	for _, c := range porttest.Cases() {
		if said := outcome(t, c.Name, openBroken(sound, 0)); said.failed {
			t.Errorf("case %s: %v", c.Name, said)
		}
	}
}
