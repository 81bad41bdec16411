package porttest

import (
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/umem"
)

// checkKick kicks far more often than necessary: nothing may fail or happen twice.
func checkKick(t testing.TB, open Opener) {
	g := newRig(t, open)
	g.kicks(64)
	for range 8 {
		g.post(g.batch(min(4, g.Window)))
		g.kicks(16)
		g.settle()
		g.kicks(16)
	}
	g.finish()
}

func (g *rig) kicks(n int) {
	g.Helper()
	for range n {
		g.kick()
	}
}

// checkIdle calls every verb of a device with nothing to return, and with frames waiting to be
// filled. No verb may block.
func checkIdle(t testing.TB, open Opener) {
	g := newRig(t, open)
	g.checkPrompt("an empty port")
	if !g.Stored {
		g.supplyAll(g.empties(min(Spare, g.Receiver.Limits().Supply)))
		g.kick()
		g.checkPrompt("a port waiting for messages")
	}
	g.exchange(min(8, g.Window))
	g.checkPrompt("a port that has given everything back")
	g.finish()
}

// checkPrompt calls the verbs many times on a separate thread, so that it can detect a verb that blocks.
func (g *rig) checkPrompt(state string) {
	g.Helper()
	const rounds = 200
	done := make(chan error, 1)
	go func() { done <- g.idleRounds(rounds) }()
	select {
	case err := <-done:
		if err != nil {
			g.Fatalf("%s: %v", state, err)
		}
	case <-time.After(g.Timeout):
		g.Fatalf("%s: %d rounds of all verbs did not end within %v: one blocks", state, rounds, g.Timeout)
	}
}

func (g *rig) idleRounds(n int) error {
	var dst [8]umem.Frame
	for range n {
		if g.Sender.Supply(nil)+g.Sender.Send(nil)+g.Receiver.Send(nil) != 0 {
			return errors.New("an empty slice was not returned as 0")
		}
		if g.Sender.Reap(dst[:]) != 0 {
			return errors.New("Reap gave frames")
		}
		if !g.Noisy && g.Receiver.Recv(dst[:]) != 0 {
			return errors.New("Recv gave frames")
		}
		if err := errors.Join(g.Sender.Kick(), g.Receiver.Kick()); err != nil {
			return err
		}
	}
	return nil
}

// checkPoll sleeps on the descriptors instead of polling the verbs.
func checkPoll(t testing.TB, open Opener) {
	g := newRig(t, open)
	for range 4 {
		g.awaitQuiet()
		g.post(g.batch(min(4, g.Window)))
		g.kick()
		if g.Stored {
			g.pollReap()
			g.supplyAll(g.requestStored())
			g.kick()
			g.pollRecv()
		} else {
			g.pollRecv()
			g.pollReap()
		}
	}
	g.awaitQuiet()
	g.finish()
}

// requestStored makes the frames for reading everything that was reaped.
func (g *rig) requestStored() []parcel {
	var ps []parcel
	for _, m := range g.stored {
		ps = append(ps, g.request(m)...)
	}
	g.stored = nil
	return ps
}

// pollRecv receives everything that must arrive, one frame at a time, each time after the
// receiver's descriptor polls readable.
func (g *rig) pollRecv() {
	g.Helper()
	g.pollUntil("Recv", g.Receiver, func() bool {
		g.recv(1)
		if g.Stored {
			return len(g.supplied) == 0
		}
		return g.due == g.next
	})
}

// pollReap is pollRecv for drained frames.
func (g *rig) pollReap() {
	g.Helper()
	if g.SilentReap {
		g.until("reap", func() bool { g.reap(1); return len(g.sent) == 0 })
		return
	}
	g.pollUntil("Reap", g.Sender, func() bool { g.reap(1); return len(g.sent) == 0 })
}

// awaitReadable waits for a port's descriptor. Ports with their own frames exchange messages with
// each other, so it also runs rounds of the other port's worker.
func (g *rig) awaitReadable(p umem.Port, deadline time.Time) bool {
	g.Helper()
	other := g.Sender
	if p == g.Sender {
		other = g.Receiver
	}
	for g.Own > 0 && time.Until(deadline) > 20*time.Millisecond {
		if g.readable(p, 10*time.Millisecond) {
			return true
		}
		if err := other.Kick(); err != nil {
			g.Fatalf("Kick: %v", err)
		}
	}
	return g.readable(p, time.Until(deadline))
}

// pollUntil repeats a step, sleeping in poll(2) before each.
func (g *rig) pollUntil(verb string, p umem.Port, step func() bool) {
	g.Helper()
	for deadline := time.Now().Add(g.Timeout); ; {
		if !g.awaitReadable(p, deadline) {
			g.Fatalf("FD did not poll readable within %v although %s has frames to give", g.Timeout, verb)
		}
		if step() {
			return
		}
		g.kick()
	}
}

// readable polls a port's descriptor.
func (g *rig) readable(p umem.Port, wait time.Duration) bool {
	g.Helper()
	fds := []unix.PollFd{{Fd: int32(p.FD()), Events: unix.POLLIN}}
	for deadline := time.Now().Add(wait); ; {
		left := max(0, time.Until(deadline))
		n, err := unix.Poll(fds, int(left.Milliseconds()))
		if err != nil && !errors.Is(err, unix.EINTR) {
			g.Fatalf("poll descriptor %d: %v", p.FD(), err)
		}
		if n > 0 && fds[0].Revents&unix.POLLNVAL != 0 {
			g.Fatalf("FD %d is not an open descriptor", p.FD())
		}
		if n > 0 && fds[0].Revents&unix.POLLIN != 0 {
			return true
		}
		if left == 0 {
			return false
		}
	}
}

// awaitQuiet waits until neither descriptor polls readable.
func (g *rig) awaitQuiet() {
	g.Helper()
	g.until("FD to fall quiet after everything was taken", func() bool {
		g.reap(Spare)
		g.recv(Spare)
		return !g.readable(g.Sender, 0) && !g.readable(g.Receiver, 0)
	})
}
