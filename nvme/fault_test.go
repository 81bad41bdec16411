package nvme

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
)

// TestRefused: invalid requests do not reach the kernel, and come back with their errors. Valid
// ones among them succeed.
func TestRefused(t *testing.T) {
	r := newRig(t, umem.Config{}, Config{})
	to, i := r.open(fileTarget(t, 1<<20))
	if to.Alignment().Memory < 8 {
		t.Fatalf("the file has no alignment to break: %v", to.Alignment())
	}
	readOnly := fileTarget(t, 1<<20)
	r.check(os.WriteFile(readOnly.Path, make([]byte, 8192), 0o600))
	_, locked := r.open(TargetConfig{Path: readOnly.Path, ReadOnly: true})
	for _, c := range []struct {
		name   string
		spoil  func(f *umem.Frame, s *umem.Side)
		want   unix.Errno
		onlyTo bool
	}{
		{"offset", func(f *umem.Frame, s *umem.Side) { s.Block = 256 }, unix.EINVAL, false},
		{"length", func(f *umem.Frame, s *umem.Side) { f.Len = 4095 }, unix.EINVAL, false},
		{"memory", func(f *umem.Frame, s *umem.Side) { f.Addr += 4; f.Len = 2048 }, unix.EINVAL, false},
		{"empty", func(f *umem.Frame, s *umem.Side) { f.Len = 0 }, unix.EINVAL, false},
		{"far away", func(f *umem.Frame, s *umem.Side) { s.Block = 1 << 63 }, unix.EINVAL, false},
		{"beyond the frame", func(f *umem.Frame, s *umem.Side) { f.Len = 8192 }, unix.EFAULT, false},
		{"wraps around", func(f *umem.Frame, s *umem.Side) { f.Addr += 512; f.Len = 0xfffff000 }, unix.EFAULT, false},
		{"no such target", func(f *umem.Frame, s *umem.Side) { s.Target = 9 }, unix.EBADF, false},
		{"no such place", func(f *umem.Frame, s *umem.Side) { s.Target = 1 << 31 }, unix.EBADF, false},
		{"read-only target", func(f *umem.Frame, s *umem.Side) { s.Target = locked }, unix.EROFS, true},
	} {
		fs := r.take(3)
		for k := range fs {
			r.at(fs[k], i, uint64(k)*4096)
		}
		c.spoil(&fs[1], r.region.Side(fs[1]))
		back := r.moveAny(fs, r.queue.Send, r.queue.Reap)
		r.checkOne(c.name, back, fs[1].Addr, c.want)
		if !c.onlyTo {
			r.checkOne(c.name, r.moveAny(clean(back), r.queue.Supply, r.queue.Recv), fs[1].Addr, c.want)
		}
		r.hands.Give(fs)
	}
	if s := r.queue.Stats(); s.Errors[unix.EINVAL] != 10 || s.Errors[unix.EFAULT] != 4 || s.Errors[unix.EBADF] != 4 || s.Errors[unix.EROFS] != 1 {
		t.Errorf("errors: %v", s.Errors)
	}
}

// clean removes the error bits of frames.
func clean(fs []umem.Frame) []umem.Frame {
	for i := range fs {
		fs[i].Options &= umem.KernelOptions
	}
	return fs
}

// checkOne checks that only the frame at addr failed, with errno.
func (r *rig) checkOne(name string, fs []umem.Frame, addr uint64, errno unix.Errno) {
	r.Helper()
	for _, f := range fs {
		var want error
		if f.Addr == addr {
			want = errno
		}
		if got := f.Err(); !errors.Is(got, want) || (got == nil) != (want == nil) {
			r.Errorf("%s: the frame at %#x has %v, want %v", name, f.Addr, got, want)
		}
	}
}

// TestChainFails: if one frame of a chain is invalid, the whole chain fails.
func TestChainFails(t *testing.T) {
	r := newRig(t, umem.Config{}, Config{})
	_, i := r.open(fileTarget(t, 1<<20))
	fs := chained(r.take(4))
	fs[2].Len = 100
	r.at(fs[0], i, 0)
	back := r.moveAny(fs, r.queue.Send, r.queue.Reap)
	for k, f := range back {
		if !errors.Is(f.Err(), unix.EINVAL) || f.Addr != fs[k].Addr || f.Continues() != (k < 3) {
			t.Errorf("frame %d: %+v, %v", k, f, f.Err())
		}
	}
	r.hands.Give(back)
}

// TestChainLimits: the verbs do not take a chain beyond the limits, and Kick reports it once.
func TestChainLimits(t *testing.T) {
	r := newRig(t, umem.Config{}, Config{Depth: 2, Frames: 8, Pieces: 4})
	_, i := r.open(fileTarget(t, 1<<20))
	fs := r.take(8)
	r.at(fs[0], i, 0)
	if n := r.queue.Send(chained(fs[:5])); n != 0 {
		t.Errorf("a chain of 5 was taken where 4 are the limit: %d", n)
	}
	if err := r.queue.Kick(); !errors.Is(err, errLongChain) {
		t.Errorf("Kick did not say so: %v", err)
	}
	testenv.Checkf(t, r.queue.Kick(), "Kick says so again")
	r.hands.Give(fs)
}

// TestEndOfFile: a read across the end of a file fails with ENODATA, and the bytes before the end
// are in place.
func TestEndOfFile(t *testing.T) {
	r := newRig(t, umem.Config{}, Config{})
	c := emptyFile(t)
	content := make([]byte, 4096+2048)
	fillRandom(content, 1)
	r.check(os.WriteFile(c.Path, content, 0o600))
	_, i := r.open(c)
	fs := chained(r.take(2))
	r.at(fs[0], i, 0)
	back := r.moveAny(fs, r.queue.Supply, r.queue.Recv)
	var got []byte
	for _, f := range back {
		if !errors.Is(f.Err(), unix.ENODATA) {
			t.Errorf("beyond the end of the file: %v", f.Err())
		}
		got = append(got, r.region.Bytes(f)...)
	}
	if string(got[:len(content)]) != string(content) {
		t.Error("what there is before the end did not arrive")
	}
	if s := r.queue.Stats(); s.Short != 1 || s.BytesRead != uint64(len(content)) || s.Errors[unix.ENODATA] != 1 {
		t.Errorf("counters: %+v", s)
	}
	r.hands.Give(back)
}

// TestDeviceError: a read from a device whose storage has gone fails. The device is a loop device
// on a truncated file.
func TestDeviceError(t *testing.T) {
	r := newRig(t, umem.Config{}, Config{})
	file := testenv.DiskFile(t, 1<<20)
	_, i := r.open(TargetConfig{Path: testenv.Loop(t, file, 0)})
	r.check(os.Truncate(file, 64<<10))
	fs := r.take(2)
	r.at(fs[0], i, 0)
	r.at(fs[1], i, 512<<10)
	back := r.moveAny(fs, r.queue.Supply, r.queue.Recv)
	r.checkOne("a lost block", back, fs[1].Addr, unix.EIO)
	r.hands.Give(back)
}

// TestFullDisk: writes to a file that grows fail when the file system is full, and another file
// stays intact.
func TestFullDisk(t *testing.T) {
	r := newRig(t, umem.Config{}, Config{})
	dir := testenv.Ext4(t, 2<<20)
	_, full := r.open(TargetConfig{Path: dir + "/full", Create: true})
	_, safe := r.open(TargetConfig{Path: dir + "/safe", Create: true, Size: 64 << 10, Prepare: PrepareZero})
	fs := chained(r.take(64))
	for block := uint64(0); ; block += 64 * 4096 {
		if block > 4<<20 {
			t.Fatal("4 MiB went onto a disk of 2")
		}
		r.at(fs[0], full, block)
		fs = r.moveAny(fs, r.queue.Send, r.queue.Reap)
		if fs[0].Err() != nil {
			break
		}
	}
	if !errors.Is(fs[0].Err(), unix.ENOSPC) {
		t.Errorf("a full disk gives %v", fs[0].Err())
	}
	one := umem.Frame{Addr: fs[0].Addr, Len: 4096}
	r.write([]umem.Frame{r.at(one, safe, 0)})
	r.hands.Give(fs)
}
