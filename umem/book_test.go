package umem

import (
	"slices"
	"testing"
)

// worldOf opens a region with one book, and with holders of a worker and a device.
func worldOf(t testing.TB, c Config) (r *Region, b *Book, worker, device *Holder) {
	t.Helper()
	r = openOrdinary(t, c)
	b = r.NewBook("book")
	return r, b, newHolder(t, b, OwnerWorker), newHolder(t, b, OwnerXDP)
}

func TestTakePassGive(t *testing.T) {
	r, b, worker, device := worldOf(t, Config{Size: 1 << 20})
	if b.Region() != r || worker.Book() != b || worker.Name() != "book worker" {
		t.Errorf("holder %q of book %v in region %v", worker.Name(), worker.Book(), b.Region())
	}
	fs := take(t, worker, 100)
	for i, f := range fs {
		if f != (Frame{Addr: uint64(i) * 4096, Len: 4096}) {
			t.Fatalf("frame %d is %+v", i, f)
		}
	}
	worker.PassTo(device, fs[:60])
	device.PassTo(worker, fs[:10])
	worker.PassTo(device, nil)
	wantHeld(t, worker, 50)
	wantHeld(t, device, 50)
	if c := audit(t, r); c != (Count{OwnerPool: 156, OwnerWorker: 50, OwnerXDP: 50}) {
		t.Fatalf("audit counts %v", c)
	}
	device.Give(fs[10:60])
	worker.Give(append(slices.Clone(fs[:10]), fs[60:]...))
	wantHeld(t, worker, 0)
	wantHeld(t, device, 0)
	if c := audit(t, r); c.Of(OwnerPool) != 256 || c.Sum() != r.Frames() {
		t.Fatalf("audit counts %v of %d frames", c, r.Frames())
	}
}

func wantHeld(t testing.TB, h *Holder, n int64) {
	t.Helper()
	if h.Held() != n {
		t.Errorf("%s holds %d frames, want %d", h.Name(), h.Held(), n)
	}
}

// TestTakeAll: the pool gives every frame once, and then none.
func TestTakeAll(t *testing.T) {
	r, _, worker, _ := worldOf(t, Config{Size: 4 << 20, FrameSize: 2048, ExtentSize: 64 << 10, Extents: 8})
	fs := make([]Frame, r.Frames()+1)
	n := worker.Take(fs)
	ex := make([]Frame, 9)
	m := worker.TakeExtents(ex)
	if m != 8 || n != int(r.Frames())-8*32 {
		t.Fatalf("took %d frames and %d extents of %d frames", n, m, r.Frames())
	}
	if worker.Take(fs[n:]) != 0 || worker.TakeExtents(ex[m:]) != 0 {
		t.Error("took from an empty pool")
	}
	wantHeld(t, worker, r.Frames())
	covered := uint64(0)
	for _, f := range slices.Concat(fs[:n], ex[:m]) {
		start, room := r.Start(f)
		if start != covered || uint64(f.Len) != room || len(r.Bytes(f)) != int(room) {
			t.Fatalf("frame %+v starts at %#x with %d bytes, want %#x", f, start, room, covered)
		}
		covered += room
	}
	if covered != r.Size() {
		t.Errorf("frames and extents cover %d of %d bytes", covered, r.Size())
	}
	audit(t, r)
}

// TestGiveViews: Give accepts a view of a frame's middle.
func TestGiveViews(t *testing.T) {
	r, _, worker, _ := worldOf(t, Config{Size: 4 << 20, Extents: 2})
	one, ext := make([]Frame, 1), make([]Frame, 1)
	worker.Take(one)
	worker.TakeExtents(ext)
	worker.Give([]Frame{{Addr: one[0].Addr + 540, Len: 60}, {Addr: ext[0].Addr + 5000, Len: 512}})
	wantHeld(t, worker, 0)
	audit(t, r)
	again := make([]Frame, 1)
	if worker.Take(again); again[0] != one[0] {
		t.Errorf("took %+v, gave %+v before", again[0], one[0])
	}
	if worker.TakeExtents(again); again[0] != ext[0] {
		t.Errorf("took %+v, gave %+v before", again[0], ext[0])
	}
}

func TestBookClose(t *testing.T) {
	r, b, worker, device := worldOf(t, Config{Size: 1 << 20})
	fs := take(t, worker, 5)
	worker.PassTo(device, fs)
	wantError(t, b.Close(), "close book book", "book xdp", "5 frames")
	device.Give(fs)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	other := newHolder(t, r.NewBook("other"), OwnerNVMe)
	got := take(t, other, 3)
	if err := b.Close(); err != nil { // must not remove the other book's ID
		t.Fatal(err)
	}
	if c := audit(t, r); c.Of(OwnerNVMe) != 3 {
		t.Errorf("audit counts %v", c)
	}
	other.Give(got)
}

// TestHolderClose: Close of a holder returns its frames, a second Close does nothing, and another
// holder can use its ID.
func TestHolderClose(t *testing.T) {
	r, b, worker, device := worldOf(t, Config{Size: 4 << 20, Extents: 1})
	worker.PassTo(device, take(t, worker, 7))
	worker.PassTo(device, takeExtents(t, worker, 1))
	if n := device.Close(); n != 7+256 {
		t.Errorf("Close gave %d frames back, want %d", n, 7+256)
	}
	next := newHolder(t, b, OwnerNVMe)
	if next.id != device.id {
		t.Errorf("the next holder has number %d, %d was free", next.id, device.id)
	}
	worker.PassTo(next, take(t, worker, 2))
	if n := device.Close(); n != 0 {
		t.Errorf("Close again gave %d frames back", n)
	}
	if c := audit(t, r); c.Of(OwnerNVMe) != 2 || c.Of(OwnerPool) != r.Frames()-2 {
		t.Errorf("audit counts %v", c)
	}
}

func takeExtents(t testing.TB, h *Holder, n int) []Frame {
	t.Helper()
	fs := make([]Frame, n)
	if got := h.TakeExtents(fs); got != n {
		t.Fatalf("took %d extents, want %d", got, n)
	}
	return fs
}

// TestHolderCloseUnpublished: if a holder closes that has passed frames on since the last Publish,
// Snapshot still adds up.
func TestHolderCloseUnpublished(t *testing.T) {
	r, b, worker, device := worldOf(t, Config{Size: 1 << 20})
	fs := take(t, worker, 10)
	worker.PassTo(device, fs)
	b.Publish()
	device.PassTo(worker, fs)
	device.Close()
	if c := r.Snapshot(); c.Sum() != r.Frames() || c.Of(OwnerWorker) != 10 {
		t.Errorf("snapshot counts %v of %d frames", c, r.Frames())
	}
}

// TestRecall: Recall returns frames that only the record still has.
func TestRecall(t *testing.T) {
	r, _, worker, device := worldOf(t, Config{Size: 8 << 20, Extents: 4})
	kept := take(t, worker, 20)
	worker.PassTo(device, take(t, worker, 30))
	worker.PassTo(device, takeExtents(t, worker, 3))
	if n := device.Recall(); n != 30+3*256 {
		t.Errorf("recalled %d frames, want %d", n, 30+3*256)
	}
	wantHeld(t, device, 0)
	wantHeld(t, worker, 20)
	if c := audit(t, r); c.Of(OwnerPool) != r.Frames()-20 {
		t.Errorf("audit counts %v", c)
	}
	if n := device.Recall(); n != 0 {
		t.Errorf("recalled %d frames of an empty holder", n)
	}
	worker.Give(kept)
}

func TestSnapshotIsAsOfPublish(t *testing.T) {
	r, b, worker, device := worldOf(t, Config{Size: 1 << 20})
	fs := take(t, worker, 10)
	worker.PassTo(device, fs)
	if c := r.Snapshot(); c.Of(OwnerWorker) != 10 || c.Of(OwnerXDP) != 0 {
		t.Errorf("before Publish the snapshot counts %v", c)
	}
	b.Publish()
	if c := r.Snapshot(); c.Of(OwnerWorker) != 0 || c.Of(OwnerXDP) != 10 || c.Of(OwnerPool) != 246 {
		t.Errorf("after Publish the snapshot counts %v", c)
	}
}

func TestTooManyHolders(t *testing.T) {
	r, b, worker, _ := worldOf(t, Config{Size: 1 << 20})
	for len(r.holders) <= 0xffff {
		r.holders = append(r.holders, worker)
	}
	_, err := b.NewHolder(OwnerXDP, "one more")
	wantError(t, err, "65535 holders", "close some queues")
	r.holders[40000] = nil
	if h, err := b.NewHolder(OwnerXDP, "one more"); err != nil || h.id != 40000 {
		t.Errorf("with number 40000 free: %v, %v", h, err)
	}
}

func TestOwners(t *testing.T) {
	var names []string
	for _, o := range Owners() {
		names = append(names, o.String())
	}
	if want := []string{"pool", "worker", "xdp", "nvme", "rdma", "granted", "shared", "cache", "attached"}; !slices.Equal(names, want) || len(names) != int(owners) {
		t.Errorf("owners are %q, want %q", names, want)
	}
}

// TestSide: each frame has its own Side, and an extent has one.
func TestSide(t *testing.T) {
	r := openOrdinary(t, Config{Size: 4 << 20, Extents: 2})
	seen := make(map[*Side]uint64)
	for addr := uint64(0); addr < r.Size(); addr += 1000 {
		start, _ := r.Start(Frame{Addr: addr})
		s := r.Side(Frame{Addr: addr})
		if other, ok := seen[s]; ok && other != start {
			t.Fatalf("the frames at %#x and %#x share an entry", other, start)
		}
		if s != r.Side(Frame{Addr: start}) {
			t.Fatalf("address %#x has another entry than its frame or extent at %#x", addr, start)
		}
		seen[s] = start
	}
}

func TestHotPathDoesNotAllocate(t *testing.T) {
	r, b, worker, device := worldOf(t, Config{Size: 8 << 20, Extents: 2})
	fs, ext := make([]Frame, 64), make([]Frame, 2)
	n := testing.AllocsPerRun(100, func() {
		worker.Take(fs)
		worker.TakeExtents(ext)
		worker.PassTo(device, fs)
		worker.PassTo(device, ext)
		r.Side(fs[0]).Token++
		r.Bytes(fs[0])[0]++
		b.Publish()
		device.Give(fs)
		device.Give(ext)
	})
	if n != 0 {
		t.Errorf("passing frames allocates %v times", n)
	}
}

// TestTakeAt: a holder takes the frames and extents that it names, if they are in the pool, and nobody else
// gets them.
func TestTakeAt(t *testing.T) {
	r, _, worker, device := worldOf(t, Config{Size: 4 << 20, ExtentSize: 1 << 20, Extents: 2})
	base, _ := r.ExtentRange()
	others := take(t, worker, 3)
	fs := []Frame{{Addr: 5 * 4096}, {Addr: others[1].Addr, Len: 9}, {Addr: base + 1<<20}, {Addr: 7 * 4096}, {Addr: 7*4096 + 1}, {Addr: 1 << 40}, {Addr: 5 * 4096}}
	if n := device.TakeAt(fs); n != 3 {
		t.Errorf("%d were taken", n)
	}
	for i, want := range []uint32{0, 0, 1 << 20, 4096, 0, 0, 4096} {
		if fs[i].Len != want {
			t.Errorf("%#x has %d bytes, want %d", fs[i].Addr, fs[i].Len, want)
		}
	}
	wantHeld(t, device, 2+256)
	rest := make([]Frame, r.Frames())
	n := worker.Take(rest)
	for _, f := range rest[:n] {
		if f.Addr == 5*4096 || f.Addr == 7*4096 {
			t.Errorf("the frame at %#x was taken twice", f.Addr)
		}
	}
	if e := worker.TakeExtents(rest[n:]); e != 1 || rest[n].Addr != base {
		t.Errorf("%d extents are left, the first at %#x", e, rest[n].Addr)
	}
	if c := audit(t, r); c.Of(OwnerXDP) != 258 || c.Of(OwnerPool) != 0 || c.Sum() != r.Frames() {
		t.Errorf("audit counts %v of %d frames", c, r.Frames())
	}
}
