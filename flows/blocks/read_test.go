package blocks

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
)

const diskSize = 8 << 20

// shapes are the regions of servers, with and without a cache.
var shapes = []struct {
	name   string
	region umem.Config
	cache  uint64
}{
	{"extents", withExtents(96), 0},
	{"extents and cache", withExtents(112), 4 << 20},
	{"frames alone", withExtents(0), 0},
	{"frames alone and cache", withExtents(0), 2 << 20},
}

// TestReads: requests of all sizes, at all depths, return the bytes of the disk.
func TestReads(t *testing.T) {
	for i, s := range shapes {
		if testing.Short() && i%3 != 0 {
			continue // run extents without a cache, and frames alone with one
		}
		t.Run(s.name, func(t *testing.T) {
			g := newRig(t, s.region)
			v := g.far.serve(newDisk(t, diskSize), Config{Cache: s.cache, Transfer: 1 << 20, Clients: 2})
			u := g.near.newCustomer(v, ClientConfig{}, 32, 32)
			for _, depth := range []int{1, 3, 32} {
				u.readMuch(depth, many())
			}
			u.readSizes()
			st := v.settled()
			if s.cache > 0 && st.Frames.Hits == 0 {
				t.Errorf("nothing was found in the cache: %+v", st.Frames)
			}
			if st.Latency == nil || st.Served != st.Requests || len(st.Refused) > 0 {
				t.Errorf("%+v", st)
			}
		})
	}
}

// many returns the number of requests of each kind.
func many() int {
	if testing.Short() {
		return testenv.Fewer(60)
	}
	return testenv.Fewer(400)
}

// readMuch sends n reads from many offsets, with depth requests outstanding.
func (u *customer) readMuch(depth, n int) {
	u.Helper()
	align := uint64(u.Align())
	frames, extents := append([]umem.Frame(nil), u.frames...), append([]umem.Frame(nil), u.extents...)
	for open := 0; n > 0 || open > 0; {
		for ; n > 0 && open < depth; n, open = n-1, open+1 {
			f, most := &frames, uint64(u.region.FrameSize())
			if u.rand.IntN(3) == 0 {
				f, most = &extents, nearExtent
			}
			length := align * (1 + u.rand.Uint64N(max(1, most/align>>u.rand.IntN(4))))
			offset := align * u.rand.Uint64N((diskSize-length)/align+1)
			if u.rand.IntN(2) == 0 {
				offset = offset % (diskSize / 8) &^ (align - 1) // a part that is read often
			}
			last := (*f)[len(*f)-1]
			*f = (*f)[:len(*f)-1]
			u.submit(Read{Offset: offset, Frame: umem.Frame{Addr: last.Addr, Len: uint32(length)}, Token: uint64(n)})
		}
		for _, d := range u.await(1) {
			u.verify(d)
			open--
			if d.Frame.Addr < u.region.Size()-u.region.Extents()*nearExtent {
				frames = append(frames, d.Frame)
			} else {
				extents = append(extents, d.Frame)
			}
		}
	}
}

// readSizes reads each size from the beginning and from the end of the disk.
func (u *customer) readSizes() {
	u.Helper()
	for _, size := range []uint32{512, 1024, 2048, 4096, 8192, 16 << 10, 64 << 10, 64<<10 + 512, 128 << 10, extent, extent + 4096, nearExtent} {
		if size%u.Align() != 0 {
			continue
		}
		for _, offset := range []uint64{0, uint64(u.Align()), u.Size() - uint64(size)} {
			u.submit(Read{Offset: offset, Frame: umem.Frame{Addr: u.extents[0].Addr, Len: size}})
			u.verify(u.await(1)[0])
		}
	}
}

// TestRead: Read makes requests one after another without a loop of the caller. If its context
// ends, it returns the cause and the connection is closed.
func TestRead(t *testing.T) {
	region, c := small()
	g := newRig(t, region)
	v := g.far.serve(newDisk(t, diskSize), c)
	u := g.near.newCustomer(v, ClientConfig{}, 2, 0)
	f := u.frames[0]
	for offset := uint64(0); offset < 1<<20; offset += 1 << 17 {
		testenv.Must(t, u.Read(t.Context(), offset, f))
		u.verify(Done{Read: Read{Offset: offset, Frame: f}})
	}
	if err := u.Read(t.Context(), diskSize, f); !errors.Is(err, protocol.OutOfRange) {
		t.Errorf("beyond the end: %v", err)
	}
	if _, err := u.Submit(Read{Frame: umem.Frame{Addr: f.Addr, Len: f.Len + 1}}); err == nil {
		t.Error("a frame that is too long was taken")
	}
	defer v.hold()()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := u.Read(ctx, 0, f); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a wait that ends: %v", err)
	}
	if _, err := u.Submit(Read{Frame: f}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("after it: %v", err)
	}
}
