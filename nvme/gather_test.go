package nvme

import (
	"bytes"
	"testing"

	"github.com/unifiedd/unifiedd/umem"
)

// pieces8 returns eight pieces of 1536 bytes. Each begins at offset 512 in its own frame. It uses
// every other frame, so that no two are adjacent.
func (r *rig) pieces8(target uint32, block uint64) []umem.Frame {
	r.Helper()
	all := r.take(16)
	var fs []umem.Frame
	for i := range all {
		if i%2 == 1 {
			r.hands.Give(all[i : i+1])
			continue
		}
		f := umem.Frame{Addr: all[i].Addr + 512, Len: 1536}
		r.fill(all[i], uint64(i)) // also around the piece
		fs = append(fs, f)
	}
	r.at(fs[0], target, block)
	return chained(fs)
}

// TestGather: a chain of eight frames can be written and read back, with and without the kernel's
// gathering from registered memory.
func TestGather(t *testing.T) {
	for _, without := range []feature{0, FeatureGatherFixed, FeatureDeviceMemory} {
		r := newRig(t, umem.Config{}, Config{}.Without(without))
		target, i := r.open(fileTarget(t, 1<<20))
		const block = 40 * 512
		fs := r.pieces8(i, block)
		var want []byte
		for _, f := range fs {
			want = append(want, r.region.Bytes(f)...)
		}
		back := r.write(fs)
		for k := range back {
			if back[k] != fs[k] {
				t.Errorf("frame %d came back as %+v, was %+v", k, back[k], fs[k])
			}
		}
		got := onDisk(t, target.Path(), 0, 1<<20)
		if !bytes.Equal(got[block:block+len(want)], want) {
			t.Error("the chain's bytes are not on the disk one after another")
		}
		if !allZero(got[:block]) || !allZero(got[block+len(want):]) {
			t.Error("something was written beside the chain")
		}
		r.scatter(fs, want)
		if s := r.queue.Stats(); s.Writes != 1 || s.Reads != 1 || (s.Pinned != 0) != (without != 0) || s.BytesWritten != 8*1536 {
			t.Errorf("without %b: %+v", without, s)
		}
		r.hands.Give(back)
	}
}

// scatter reads the chain back into the same frames.
func (r *rig) scatter(fs []umem.Frame, want []byte) {
	r.Helper()
	for _, f := range fs {
		clear(r.region.Bytes(f))
	}
	var got []byte
	for _, f := range r.read(fs) {
		got = append(got, r.region.Bytes(f)...)
	}
	if !bytes.Equal(got, want) {
		r.Error("what was read back differs")
	}
}

func allZero(b []byte) bool { return len(bytes.TrimLeft(b, "\x00")) == 0 }

// TestAddresses: a submission has exactly the frames' own addresses, so the kernel reads the bytes
// in place.
func TestAddresses(t *testing.T) {
	r := newRig(t, umem.Config{}, Config{})
	_, i := r.open(fileTarget(t, 1<<20))
	base := address(r.region.Data())

	one := r.take(1)
	one[0].Addr, one[0].Len = one[0].Addr+512, 1024
	r.at(one[0], i, 8192)
	r.queue.Send(one)
	want := sqe{opcode: opWriteFixed, flags: sqeFixedFile, fd: int32(i), off: 8192, addr: base + one[0].Addr, len: 1024, userData: r.lastPushed().userData}
	if got := r.lastPushed(); got != want {
		t.Errorf("a single frame is submitted as\n%+v, want\n%+v", got, want)
	}

	fs := r.pieces8(i, 0)
	r.queue.Send(fs)
	s := r.lastPushed()
	vecs := r.queue.scratch.pieces[int(uint32(s.userData))*r.queue.pieces:][:s.len]
	if s.opcode != opWritevFixed || s.addr != vecsAddress(vecs) || len(vecs) != len(fs) {
		t.Fatalf("a chain of %d is submitted as %+v", len(fs), s)
	}
	for k, f := range fs {
		if vecs[k] != (iovec{base: base + f.Addr, len: uint64(f.Len)}) {
			t.Errorf("piece %d is %+v, the frame %+v", k, vecs[k], f)
		}
	}
	r.hands.Give(r.collect(len(fs)+1, r.queue.Reap))
}

// lastPushed is the last submission queued.
func (r *rig) lastPushed() sqe {
	sq := &r.queue.ring.sq
	return sq.sqes[(sq.next-1)&sq.mask]
}

// TestNeighbours: adjacent frames become one piece.
func TestNeighbours(t *testing.T) {
	r := newRig(t, umem.Config{}, Config{})
	target, i := r.open(fileTarget(t, 1<<20))
	fs := chained(r.take(8))
	for k, f := range fs {
		r.fill(f, uint64(k))
		if k > 0 && f.Addr != fs[k-1].Addr+4096 {
			t.Fatal("the pool gave no neighbours")
		}
	}
	want := bytes.Clone(r.region.At(fs[0].Addr, 8*4096))
	r.at(fs[0], i, 4096)
	r.queue.Send(fs)
	if s := r.lastPushed(); s.opcode != opWriteFixed || s.len != 8*4096 || s.addr != address(r.region.Data())+fs[0].Addr {
		t.Errorf("eight neighbours are submitted as %+v", s)
	}
	r.hands.Give(r.collect(8, r.queue.Reap))
	if !bytes.Equal(onDisk(t, target.Path(), 4096, 8*4096), want) {
		t.Error("the disk has other bytes")
	}
}

// TestRest: after a short transfer the next submission has exactly the rest.
func TestRest(t *testing.T) {
	r := newRig(t, umem.Config{}, Config{})
	_, i := r.open(fileTarget(t, 1<<20))
	base := address(r.region.Data())
	fs := r.pieces8(i, 512)
	r.queue.Send(fs)
	n := uint32(r.lastPushed().userData)
	o := &r.queue.ops[n]
	for _, c := range []struct {
		done, first, left uint64
		pieces            int
	}{
		{512, base + fs[0].Addr + 512, 1024, 8},
		{1536, base + fs[1].Addr, 1536, 7},
		{3*1536 + 1024, base + fs[3].Addr + 1024, 512, 5},
		{7*1536 + 512, base + fs[7].Addr + 512, 1024, 1},
	} {
		r.queue.retractOnly()
		o.done = c.done
		r.queue.issue(n)
		s := r.lastPushed()
		first := iovec{s.addr, uint64(s.len)}
		if c.pieces > 1 {
			first = r.queue.scratch.pieces[int(n)*r.queue.pieces]
		}
		if s.off != 512+c.done || c.pieces > 1 && int(s.len) != c.pieces || first != (iovec{c.first, c.left}) {
			t.Errorf("after %d bytes: %+v, first piece %+v", c.done, s, first)
		}
	}
	r.queue.retractOnly()
	o.done = 0
	r.queue.issue(n)
	r.hands.Give(r.collect(8, r.queue.Reap))
}

// retractOnly removes the last submission.
func (q *Queue) retractOnly() { q.ring.sq.next-- }

// TestTwoBuffers: chains and frames at the border of two registered buffers transfer correctly.
func TestTwoBuffers(t *testing.T) {
	const seam = 1 << bufferShift
	q := &Queue{buffers: bufferNumbers{plain: 2 * seam, first: 2}}
	near := q.joinPiece(nil, seam-4096, 4096)
	if got := q.joinPiece(near, seam, 4096); len(got) != 2 {
		t.Errorf("neighbours in two buffers are joined: %+v", got)
	}
	if got := q.joinPiece(q.joinPiece(nil, seam, 4096), seam+4096, 512); len(got) != 1 || got[0].len != 4608 {
		t.Errorf("neighbours in one buffer are not joined: %+v", got)
	}
	for _, c := range []struct {
		k     kind
		fixed bool
		want  uint8
	}{{writing, true, opWritevFixed}, {writing, false, opWritev}, {reading, true, opReadvFixed}, {reading, false, opReadv}} {
		if got := gatherCode(c.k, c.fixed); got != c.want {
			t.Errorf("kind %d, fixed %t: operation %d", c.k, c.fixed, got)
		}
	}
}
