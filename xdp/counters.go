package xdp

import "sync/atomic"

// word is a counter with one writer, the port's thread; anyone may read it.
type word struct {
	mine  uint64 // the writer's copy
	shown atomic.Uint64
}

func (w *word) add(n uint64) {
	w.mine += n
	w.shown.Store(w.mine)
}

func (w *word) load() uint64 { return w.shown.Load() }

// flow counts one direction, once per batch.
type flow struct{ packets, frames, bytes word }

func (f *flow) add(packets, frames, bytes uint64) {
	f.packets.add(packets)
	f.frames.add(frames)
	f.bytes.add(bytes)
}

func (f *flow) load() Traffic {
	return Traffic{Packets: f.packets.load(), Frames: f.frames.load(), Bytes: f.bytes.load()}
}

// counters are a port's own.
type counters struct {
	received, sent flow
	completed      word
	refused        word
	wakeups        word
}
