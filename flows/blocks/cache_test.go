package blocks

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/nvme"
	"github.com/unifiedd/unifiedd/umem"
)

// caches returns the cache sizes with which a test runs.
func caches() []uint64 {
	if testing.Short() {
		return []uint64{2 << 20}
	}
	return []uint64{0, 2 << 20}
}

// get reads once and compares.
func (u *customer) get(offset uint64, into umem.Frame, n uint32) {
	u.Helper()
	u.submit(Read{Offset: offset, Frame: umem.Frame{Addr: into.Addr, Len: n}})
	u.verify(u.await(1)[0])
}

// TestCache: the cache finds blocks that were read before, for any part of them. After Invalidate
// it no longer returns blocks that were overwritten.
func TestCache(t *testing.T) {
	region, c := small()
	c.Cache = 4 << 20
	g := newRig(t, region)
	d := newDisk(t, diskSize)
	v := g.far.serve(d, c)
	u := g.near.newCustomer(v, ClientConfig{}, 1, 1)
	align := u.Align()
	u.get(8192, u.extents[0], 32<<10)
	u.get(8192+4096, u.frames[0], 4096)
	u.get(8192+uint64(align), u.frames[0], align)
	u.get(8192+4096-uint64(align), u.extents[0], 8192)
	st := v.settled()
	if f := st.Frames; f.Misses != 8 || f.Hits < 4 || st.Disk.Reads != 1 {
		t.Errorf("frames that follow each other are not one read, or are not found: %+v, %+v", f, st.Disk)
	}
	u.get(1<<20, u.extents[0], 512<<10)
	u.get(1<<20, u.extents[0], 512<<10)
	u.get(1<<20, u.extents[0], 128<<10)
	if e := v.settled().Extents; e.Misses != 2 || e.Hits != 3 {
		t.Errorf("of extents: %+v", e)
	}

	old := append([]byte(nil), d.content...)
	d.fill(2)
	testenv.Must(t, os.WriteFile(d.path, d.content, 0o600))
	now := d.content
	d.content = old
	u.get(8192, u.extents[0], 32<<10)
	u.get(1<<20, u.extents[0], 512<<10)
	testenv.Must(t, v.do(func() error { v.server.Invalidate(12288, 1); v.server.Invalidate(1<<20+300<<10, 4096); return nil }))
	copy(d.content[12288:16384], now[12288:])
	copy(d.content[1<<20+extent:1<<20+2*extent], now[1<<20+extent:])
	u.get(8192, u.extents[0], 32<<10)
	u.get(1<<20, u.extents[0], 512<<10)
	testenv.Must(t, v.do(func() error { v.server.Invalidate(0, 1<<63); return nil }))
	d.content = now
	u.get(8192, u.extents[0], 32<<10)
	u.get(1<<20, u.extents[0], 512<<10)
	if got := v.server.region.Snapshot().Of(umem.OwnerCache); got == 0 {
		t.Error("no frame counts as cached")
	}
}

// TestDiskErrors: the server refuses a request whose read fails, and answers all others. The cache
// keeps nothing of a failed read.
func TestDiskErrors(t *testing.T) {
	region, c := small()
	for _, c.Cache = range caches() {
		g := newRig(t, region)
		d := newDisk(t, diskSize)
		v := g.far.serve(d, c)
		u := g.near.newCustomer(v, ClientConfig{}, 1, 1)
		testenv.Must(t, os.Truncate(d.path, 4<<20))
		for _, r := range []Read{{Offset: 6 << 20, Frame: u.frames[0]}, {Offset: 4<<20 - 4096, Frame: umem.Frame{Addr: u.extents[0].Addr, Len: 8192}}, {Offset: 4<<20 - 4096, Frame: u.extents[0]}} {
			u.submit(r)
			if a := u.await(1)[0]; a.Err != protocol.DiskError {
				t.Errorf("%+v: %v", r, a.Err)
			}
		}
		u.get(4<<20-4096, u.frames[0], 4096)
		testenv.Must(t, os.WriteFile(d.path, d.content, 0o600))
		u.get(6<<20, u.frames[0], 4096)
		u.get(4<<20-4096, u.extents[0], nearExtent)
		if st := v.settled(); st.Refused[protocol.DiskError] != 3 || st.Frames.Failed+st.Extents.Failed < 3 || st.Ended != 0 {
			t.Errorf("%+v", st)
		}
	}
}

// TestBadBlocks: with a cache, the server refuses only the requests for a block that cannot be
// read. It answers a request for other blocks, even if the cache or a concurrent request reads the
// bad block together with them.
func TestBadBlocks(t *testing.T) {
	region, c := small()
	c.Cache = 4 << 20
	g := newRig(t, region)
	d := newDisk(t, diskSize)
	v := g.far.serve(d, c)
	u := g.near.newCustomer(v, ClientConfig{}, 2, 2)
	align := uint64(u.Align())
	end := uint64(4<<20) - align // reads after this offset fail
	testenv.Must(t, os.Truncate(d.path, int64(end)))
	into := func(f umem.Frame, n uint64) umem.Frame { return umem.Frame{Addr: f.Addr, Len: uint32(n)} }
	for _, both := range []struct{ good, bad Read }{
		{Read{Offset: end - align, Frame: into(u.frames[0], align)}, Read{Offset: end, Frame: into(u.frames[1], align)}},
		{Read{Offset: end - 8192, Frame: into(u.extents[0], 8192)}, Read{Offset: end - 32<<10, Frame: into(u.extents[1], 64<<10)}},
		{Read{Offset: end - 128<<10, Frame: into(u.extents[0], 128<<10)}, Read{Offset: end - 128<<10, Frame: into(u.extents[1], 256<<10)}},
	} {
		release := v.hold() // so that the second request finds the first one's read in progress
		both.bad.Token = 1
		u.submit(both.bad)
		u.submit(both.good)
		if _, err := u.Poll(nil); err != nil {
			t.Fatal(err)
		}
		release()
		for _, a := range u.await(2) {
			if a.Token == 0 {
				u.verify(a)
			} else if a.Err != protocol.DiskError {
				t.Errorf("%d bytes at %d, of which some are bad: %v", a.Frame.Len, a.Offset, a.Err)
			}
		}
	}
	if st := v.settled(); st.Refused[protocol.DiskError] != 3 || st.Served != 3 || st.Retried < 5 || st.Ended != 0 {
		t.Errorf("%+v", st)
	}
	testenv.Must(t, os.WriteFile(d.path, d.content, 0o600))
	u.get(end-128<<10, u.extents[0], 256<<10)
}

// TestOutOfOrder: the server answers a request from the cache while an earlier one waits for the
// disk.
func TestOutOfOrder(t *testing.T) {
	region, c := small()
	c.Cache = 2 << 20
	g := newRig(t, region)
	v := g.far.serve(newDisk(t, diskSize), c)
	u := g.near.newCustomer(v, ClientConfig{}, 1, 1)
	u.get(0, u.frames[0], 4096)
	overtook := 0
	for i := range 20 {
		u.submit(Read{Offset: 1<<20 + uint64(i%4)*nearExtent, Frame: u.extents[0], Token: 1})
		u.submit(Read{Offset: 0, Frame: u.frames[0], Token: 2})
		if u.await(1)[0].Token == 2 {
			overtook++
		}
		u.await(1)
	}
	if overtook == 0 {
		t.Error("answers come in the order of requests")
	}
}

// TestManyClients: several clients request at the same time, one of them more than its share. Each
// gets all its answers.
func TestManyClients(t *testing.T) {
	region, c := small()
	c.Cache = 1 << 20
	g := newRig(t, region)
	v := g.far.serve(newDisk(t, diskSize), c)
	var all []*customer
	for range c.Clients {
		all = append(all, g.near.newCustomer(v, ClientConfig{}, 16, 8))
	}
	const each = 60
	open, left := make([]int, len(all)), make([]int, len(all))
	for i := range left {
		left[i] = each
	}
	done := make([]Done, 8)
	for end := time.Now().Add(waitLimit); ; {
		busy := 0
		for i, u := range all {
			for ; left[i] > 0 && open[i] < u.Window(); left[i], open[i] = left[i]-1, open[i]+1 {
				f := &u.frames
				if i == 0 {
					f = &u.extents // the client with long requests
				}
				last := len(*f) - 1
				u.submit(Read{Offset: u.rand.Uint64N(diskSize-nearExtent) &^ 4095, Frame: (*f)[last]})
				*f = (*f)[:last]
			}
			n, err := u.Poll(done)
			testenv.Must(t, err)
			for _, d := range done[:n] {
				u.verify(d)
				f := &u.frames
				if i == 0 {
					f = &u.extents
				}
				*f = append(*f, d.Frame)
			}
			open[i] -= n
			busy += open[i] + left[i]
		}
		if busy == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("still open %v, not asked %v: %+v", open, left, v.server.Stats())
		}
	}
	st := v.settled()
	for _, one := range st.Clients {
		if one.Served != each {
			t.Errorf("%+v", one)
		}
	}
	if len(st.Clients) != c.Clients || st.Served != uint64(c.Clients*each) {
		t.Errorf("%+v", st)
	}
}

// TestEvents: the descriptors of a server wake its worker for requests, for the disk, and for
// answers that have arrived.
func TestEvents(t *testing.T) {
	region, c := small()
	c.Events = true
	g := newRig(t, region)
	v := g.far.serve(newDisk(t, diskSize), c)
	u := g.near.newCustomer(v, ClientConfig{}, 8, 8)
	u.readMuch(1, 20)
	u.readMuch(8, 20)
	begin := v.server.Stats().Disk.Enters
	time.Sleep(50 * time.Millisecond)
	if more := v.server.Stats().Disk.Enters - begin; more > 20 {
		t.Errorf("the worker wakes up for nothing, %d times", more)
	}
}

// TestBlockDevice: the server reads a device whose blocks are longer than the region's frames into
// extents.
func TestBlockDevice(t *testing.T) {
	for _, cache := range caches() {
		t.Run(fmt.Sprint(cache), func(t *testing.T) {
			region, c := small()
			region.FrameSize, c.Cache = 2048, cache
			g := newRig(t, region)
			d := &disk{path: testenv.Zram(t, diskSize), content: make([]byte, diskSize)}
			d.fill(3)
			testenv.Must(t, os.WriteFile(d.path, d.content, 0o600))
			d.open(t, nvme.TargetConfig{Path: d.path, ReadOnly: true})
			v := g.far.serve(d, c)
			u := g.near.newCustomer(v, ClientConfig{}, 8, 8)
			if u.Align() != 4096 || u.Size() != diskSize {
				t.Fatalf("the disk has %d bytes in blocks of %d", u.Size(), u.Align())
			}
			u.readSizes()
			u.readMuch(8, 30)
			if st := v.settled(); st.Frames.Buffers != 0 || len(st.Refused) > 0 {
				t.Errorf("%+v", st)
			}
		})
	}
}
