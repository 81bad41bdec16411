package nvme

import (
	"bytes"
	"os"
	"testing"

	"pgregory.net/rapid"

	"github.com/unifiedd/unifiedd/umem"
)

// TestRoundTrip: blocks that a queue writes can be read from the disk by another program and by the
// queue, on every kind of target, also with only the features of older kernels.
func TestRoundTrip(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) { roundTrip(t, k.config(t, 1<<20), Config{}) })
	}
	for _, v := range versions {
		t.Run(v.name, func(t *testing.T) { roundTrip(t, fileTarget(t, 1<<20), Config{}.Without(v.without)) })
	}
}

func roundTrip(t *testing.T, target TargetConfig, c Config) {
	r := newRig(t, umem.Config{}, c)
	to, i := r.open(target)
	if !to.Direct() {
		t.Fatal("the target has no direct I/O")
	}
	const n = 64
	fs := r.take(n)
	var want []byte
	for k, f := range fs {
		r.fill(r.at(f, i, uint64(k)*4096), uint64(k))
		want = append(want, r.region.Bytes(f)...)
	}
	fs = r.write(fs)
	if res := r.flush(i, 7); res != (FlushResult{Token: 7}) {
		t.Errorf("flush: %+v", res)
	}
	if !bytes.Equal(onDisk(t, to.Path(), 0, n*4096), want) {
		t.Error("another program reads other bytes from the disk")
	}
	for _, f := range fs {
		clear(r.region.Bytes(f))
	}
	for _, f := range r.read(fs) {
		if at := r.region.Side(f).Block; !bytes.Equal(r.region.Bytes(f), want[at:at+4096]) {
			t.Errorf("block at %d was read wrong", at)
		}
	}
	s := r.queue.Stats()
	if s.Reads != n || s.Writes != n || s.Flushes != 1 || s.BytesRead != n*4096 || s.BytesWritten != n*4096 || s.Copied != 0 || len(s.Errors) != 0 || s.InFlight != 0 {
		t.Errorf("counters: %+v", s)
	}
	r.hands.Give(fs)
}

// model is the expected content of a target, and the operations in flight.
type model struct {
	*rig
	t        *rapid.T
	target   []uint32
	content  [][]byte
	busy     map[uint64]bool // target<<32 | block number
	hand     []umem.Frame
	inFlight int // frames
	flushes  int
	seed     uint64
}

const (
	modelBlock  = 4096
	modelBlocks = 64
)

// TestRandom: random reads, writes, chains and flushes on two targets agree with a model. Two
// operations on one block never overlap.
func TestRandom(t *testing.T) {
	r := newRig(t, umem.Config{}, Config{Depth: 16, Frames: 48, Pieces: 8})
	m := &model{rig: r, busy: make(map[uint64]bool)}
	for _, k := range kinds[:2] {
		to, i := r.open(k.config(t, modelBlocks*modelBlock))
		m.target = append(m.target, i)
		m.content = append(m.content, make([]byte, modelBlocks*modelBlock))
		defer m.compare(to, len(m.target)-1)
	}
	m.hand = r.take(64)
	rapid.Check(t, func(t *rapid.T) {
		m.t = t
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			m.step()
		}
		for m.inFlight > 0 || m.flushes > 0 {
			m.kick()
			m.harvest(64)
		}
	})
	r.hands.Give(m.hand)
}

func (m *model) step() {
	switch rapid.IntRange(0, 5).Draw(m.t, "step") {
	case 0, 1:
		m.begin(true)
	case 2:
		m.begin(false)
	case 3:
		m.kick()
	case 4:
		m.harvest(rapid.IntRange(0, 9).Draw(m.t, "room"))
	case 5:
		if err := m.queue.Flush(m.target[0], 1); err == nil {
			m.flushes++
		} else if err != ErrBusy {
			m.t.Fatal(err)
		}
	}
}

// begin starts a write or read of one to eight blocks.
func (m *model) begin(write bool) {
	at := rapid.IntRange(0, len(m.target)-1).Draw(m.t, "target")
	n := rapid.IntRange(1, min(8, len(m.hand)+1)).Draw(m.t, "blocks")
	first := rapid.IntRange(0, modelBlocks-n).Draw(m.t, "first")
	if n > len(m.hand) || m.isBusy(at, first, n) {
		return
	}
	fs := m.hand[:n:n]
	for i := range fs {
		fs[i] = umem.Frame{Addr: fs[i].Addr, Len: modelBlock}
		s := m.region.Side(m.at(fs[i], m.target[at], uint64(first+i)*modelBlock))
		s.Token = uint64(at)
		m.seed++
		m.fill(fs[i], m.seed)
	}
	verb := m.queue.Supply
	if write {
		verb = m.queue.Send
	}
	if verb(chained(fs)) == 0 {
		return
	}
	m.hand = m.hand[n:]
	m.inFlight += n
	for i := range fs {
		m.busy[uint64(at)<<32|uint64(first+i)] = true
		if write {
			copy(m.content[at][(first+i)*modelBlock:], m.region.Bytes(fs[i]))
		}
	}
}

func (m *model) isBusy(at, first, n int) bool {
	for b := first; b < first+n; b++ {
		if m.busy[uint64(at)<<32|uint64(b)] {
			return true
		}
	}
	return false
}

func (m *model) kick() {
	if err := m.queue.Kick(); err != nil {
		m.t.Fatal(err)
	}
}

// harvest takes completed frames and compares the bytes of reads.
func (m *model) harvest(room int) {
	dst := make([]umem.Frame, room)
	for _, f := range dst[:m.queue.Recv(dst)] {
		at, block := m.back(f)
		if !bytes.Equal(m.region.Bytes(f), m.content[at][block:block+modelBlock]) {
			m.t.Fatalf("block %d of target %d was read wrong", block/modelBlock, at)
		}
	}
	for _, f := range dst[:m.queue.Reap(dst)] {
		m.back(f)
	}
	var done [4]FlushResult
	m.flushes -= m.queue.Flushed(done[:])
}

// back returns a frame to the worker and says where it was.
func (m *model) back(f umem.Frame) (at int, block uint64) {
	if f.Err() != nil || f.Len != modelBlock {
		m.t.Fatalf("frame %+v: %v", f, f.Err())
	}
	s := m.region.Side(f)
	delete(m.busy, s.Token<<32|s.Block/modelBlock)
	m.hand = append(m.hand, umem.Frame{Addr: f.Addr, Len: f.Len})
	m.inFlight--
	return int(s.Token), s.Block
}

// compare reads the whole target with another program.
func (m *model) compare(to *Target, at int) {
	if !bytes.Equal(onDisk(m, to.Path(), 0, modelBlocks*modelBlock), m.content[at]) {
		m.Errorf("%s differs from the model", to.Path())
	}
}

// TestExtents: a queue can write and read extents of 1 MiB.
func TestExtents(t *testing.T) {
	r := newRig(t, umem.Config{Size: 8 << 20, Extents: 4}, Config{Depth: 4})
	to, i := r.open(fileTarget(t, 4<<20))
	fs := make([]umem.Frame, 4)
	if r.hands.TakeExtents(fs) != 4 {
		t.Fatal("no extents")
	}
	var want []byte
	for k, f := range fs {
		r.fill(r.at(f, i, uint64(k)<<20), uint64(k))
		want = append(want, r.region.Bytes(f)...)
	}
	fs = r.write(fs)
	got, err := os.ReadFile(to.Path())
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("the file has other bytes: %v", err)
	}
	r.hands.Give(fs)
}
