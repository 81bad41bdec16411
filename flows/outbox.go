package flows

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/device"
	"github.com/unifiedd/unifiedd/flows/fanout"
	"github.com/unifiedd/unifiedd/flows/stream"
	"github.com/unifiedd/unifiedd/umem"
)

// outbox is the end of a flow from which messages go to RDMA peers. It belongs to the
// worker's thread, but for what starts and ends it.
type outbox struct {
	target *device.RDMA
	fan    *fanout.Fanout
	do     stream.Doer
	names  []string // of the peers
	freed  [2 * burst]umem.Frame
	dials  service
	times  stream.SenderTimes // of all peers

	moved uint64    // when the flow ends: acknowledgements until now,
	still time.Time // and when the last came
}

// connect has peers connected, and again when they are lost.
func (b *outbox) connect() { b.dials.begin(b.runPeers) }

// free takes back the frames that no peer needs any more.
func (b *outbox) free(to *umem.FreeList) {
	for {
		n := b.fan.Free(b.freed[:])
		for _, f := range b.freed[:n] {
			f.Options = 0
			to.Push(f)
		}
		if n < len(b.freed) {
			return
		}
	}
}

// parting is how long peers of a flow that ends may be silent until what they have not
// acknowledged is given up.
const parting = 2 * time.Second

// settled reports, of a flow that ends, whether peers have acknowledged everything, or
// nothing for a while.
func (b *outbox) settled(now time.Time) bool {
	if b.fan.Idle() {
		return true
	}
	acknowledged := uint64(0)
	for _, p := range b.fan.Stats() {
		acknowledged += p.Sender.Acknowledged
	}
	if b.still.IsZero() || acknowledged != b.moved {
		b.moved, b.still = acknowledged, now
	}
	return now.Sub(b.still) >= parting
}

// lacking says which peers are not connected; nil where none is missed.
func (b *outbox) lacking() error {
	for i, p := range b.fan.Stats() {
		if p.Sender.State != stream.SenderConnected {
			return &peerError{b.names[i], p.Sender.Address, p.Sender.Cause}
		}
	}
	return nil
}

// peerError is a peer that is not connected.
type peerError struct{ name, address, cause string }

func (e *peerError) Error() string {
	text := "peer " + e.name + " (" + e.address + ") is not connected"
	if e.cause != "" {
		text += ": " + e.cause
	}
	return text
}

func (b *outbox) FDs(dst []unix.PollFd) []unix.PollFd { return b.fan.FDs(dst) }

// give hands messages of whole frames to the fanout, one after the other, and returns how
// many frames it took. Stamps are those of the frames.
func (b *outbox) give(region *umem.Region, fs []umem.Frame) (done int) {
	for done < len(fs) {
		n, _ := umem.PacketLen(fs[done:])
		if n == 0 || !b.fan.Offer(fs[done:done+n], 0, region.Side(fs[done]).Stamp) {
			break
		}
		done += n
	}
	return done
}
