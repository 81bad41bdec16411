package nvme

import (
	"bytes"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
)

// outsideBlock is the size of blocks in tests.
const outsideBlock = 64 << 10

// outsideMemory maps n blocks with a pattern.
func outsideMemory(t *testing.T, n int) []byte {
	t.Helper()
	mem, err := unix.Mmap(-1, 0, n*outsideBlock, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANONYMOUS|unix.MAP_SHARED)
	testenv.Must(t, err)
	t.Cleanup(func() { unix.Munmap(mem) })
	for i := range mem {
		mem[i] = byte(i>>9) ^ byte(i>>16)
	}
	return mem
}

// TestOutside: blocks of memory outside the region are written from where they are, beside frames of the region,
// and each comes back. No account of the region changes for them.
func TestOutside(t *testing.T) {
	for _, loose := range []bool{false, true} {
		const n = 8
		mem := outsideMemory(t, n)
		r := newRig(t, umem.Config{}, Config{Outside: Outside{Memory: mem, Block: outsideBlock}})
		if !r.queue.Granted().Outside {
			t.Fatal("the memory is not registered")
		}
		r.queue.outside.unregistered = loose
		dest, index := r.open(fileTarget(t, (n+1)*outsideBlock))
		at := func(i int) umem.Frame {
			f := umem.Frame{Addr: r.region.Size() + uint64(i)*outsideBlock + 512, Len: outsideBlock - 1024}
			*r.queue.Side(f) = umem.Side{Target: index, Block: uint64(i) * outsideBlock, Token: uint64(i) + 1}
			return f
		}
		inside := make([]umem.Frame, 1)
		r.hands.Take(inside)
		inside[0].Len = 4096
		r.region.Side(inside[0]).Target, r.region.Side(inside[0]).Block = index, n*outsideBlock
		all := []umem.Frame{inside[0]}
		for i := range n {
			all = append(all, at(i))
		}
		if sent := r.queue.Send(all); sent != len(all) {
			t.Fatalf("sent %d of %d", sent, len(all))
		}
		seen, back := map[uint64]bool{}, make([]umem.Frame, 4)
		for end := time.Now().Add(10 * time.Second); len(seen) < len(all) && time.Now().Before(end); {
			r.check(r.queue.Wait(100 * time.Millisecond))
			for _, f := range back[:r.queue.Reap(back)] {
				if f.Err() != nil {
					t.Fatalf("%+v: %v", f, f.Err())
				}
				seen[r.queue.Side(f).Token] = true
				if f.Addr < r.region.Size() {
					r.hands.Give([]umem.Frame{f})
				}
			}
		}
		got, err := os.ReadFile(dest.Path())
		if err != nil || len(seen) != len(all) {
			t.Fatalf("%d of %d came back: %v", len(seen), len(all), err)
		}
		for i := range n {
			from := i * outsideBlock
			if !bytes.Equal(got[from:from+outsideBlock-1024], mem[from+512:from+outsideBlock-512]) {
				t.Errorf("loose %v: block %d differs", loose, i)
			}
		}
		if p := r.queue.Stats().Pinned; p == 0 == loose {
			t.Errorf("loose %v: %d operations pinned their pages", loose, p)
		}
	}
}

// TestOutsideRefuses: frames that are not whole parts of one block, chains and reads come back with an error, and
// the kernel does not see them. Memory that has no blocks is refused.
func TestOutsideRefuses(t *testing.T) {
	mem := outsideMemory(t, 2)
	r := newRig(t, umem.Config{}, Config{Outside: Outside{Memory: mem, Block: outsideBlock}})
	_, index := r.open(fileTarget(t, 4*outsideBlock))
	base := r.region.Size()
	for _, c := range []struct {
		frames []umem.Frame
		read   bool
		want   unix.Errno
	}{
		{[]umem.Frame{{Addr: base + outsideBlock - 512, Len: 1024}}, false, unix.EFAULT},
		{[]umem.Frame{{Addr: base + 2*outsideBlock, Len: 512}}, false, unix.EFAULT},
		{[]umem.Frame{{Addr: base + 1<<40, Len: 512}}, false, unix.EFAULT},
		{[]umem.Frame{{Addr: base, Len: 4096, Options: umem.More}, {Addr: base + 4096, Len: 4096}}, false, unix.EINVAL},
		{[]umem.Frame{{Addr: base, Len: 4096}}, true, unix.EINVAL},
	} {
		*r.queue.Side(c.frames[0]) = umem.Side{Target: index}
		back := make([]umem.Frame, 4)
		n := 0
		if c.read {
			r.queue.Supply(c.frames)
			n = r.queue.Recv(back)
		} else {
			r.queue.Send(c.frames)
			n = r.queue.Reap(back)
		}
		if n != len(c.frames) || back[0].Err() != c.want {
			t.Errorf("%+v: %d came back, %v; want %v", c.frames, n, back[0].Err(), c.want)
		}
	}
	for _, c := range []Outside{{mem, 1000}, {mem, 2048}, {mem[:outsideBlock+4096], outsideBlock}, {mem, 2 << 30}} {
		if q, err := Open(Config{Worker: r.hands, Outside: c}); err == nil {
			t.Errorf("blocks of %d are accepted", c.Block)
			r.check(q.Close())
		}
	}
}
