package xdp

import (
	"sync/atomic"

	"github.com/unifiedd/unifiedd/internal/release"
)

// word is a counter with one writer, the port's thread; anyone may read it.
type word struct {
	mine  uint64 // the writer's copy
	shown atomic.Uint64
}

func (w *word) add(n uint64) {
	w.mine += n
	release.Store64(&w.shown, w.mine)
}

func (w *word) load() uint64 { return w.shown.Load() }

// flow counts one direction, once per batch. Most packets are one frame, so that
// it is the others' further frames which are counted: a word less to write.
type flow struct{ packets, further, bytes word }

func (f *flow) add(packets, frames, bytes uint64) {
	if packets > 0 {
		f.packets.add(packets)
	}
	if frames != packets { // below zero where a batch has only the end of a packet
		f.further.add(frames - packets)
	}
	f.bytes.add(bytes)
}

func (f *flow) load() Traffic {
	packets := f.packets.load()
	return Traffic{Packets: packets, Frames: packets + f.further.load(), Bytes: f.bytes.load()}
}

// counters are a port's own.
type counters struct {
	received, sent flow
	stamped        word
	completed      word
	refused        word
	wakeups        word
}
