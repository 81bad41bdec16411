package roce

import (
	"bytes"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/umem"
)

func lender(loans int) rdma.QueuePairConfig {
	c := config(rdma.RC)
	c.Loans, c.RecvDepth = loans, 0
	return c
}

// TestLoans: the program gets messages, of one packet or several, in the frames that they arrived
// in, and every frame has an owner.
func TestLoans(t *testing.T) {
	g := newRig(t, rigOptions{mtu: 4200})
	a, b := g.connected(lender(32), rdma.MTU2048)
	from := b.qp.(rdma.Lender)
	copied := b.value("copied_bytes")
	var fs [64]umem.Frame
	for i, size := range []int{0, 1, 64, 2048, 2049, 3 * 2048, 10_000} {
		want := a.fill(0, size, byte(i))
		a.send(rdma.SendRequest{ID: 1, Op: rdma.Send}, a.sge(0, size))
		c := b.completion()
		n := from.Loaned(fs[:])
		if got := b.bytes(fs[:n]); int(c.Length) != size || !bytes.Equal(got, want) {
			t.Errorf("%d bytes came, in %d frames %d, want %d (or they differ)", c.Length, n, len(got), size)
		}
		if size > 0 && (c.ID != fs[0].Addr || fs[n-1].Continues()) {
			t.Errorf("the completion says %#x, the first frame is %+v, the last %+v", c.ID, fs[0], fs[n-1])
		}
		b.counted()
		from.Return(fs[:n])
		a.want(1, rdma.SendDone, rdma.Success)
	}
	if n := b.value("copied_bytes") - copied; n != 0 {
		t.Errorf("%d bytes were copied", n)
	}
}

// bytes returns the contents of frames.
func (s *side) bytes(fs []umem.Frame) (all []byte) {
	for _, f := range fs {
		all = append(all, s.region.Bytes(f)...)
	}
	return all
}

// counted checks that every frame has an owner.
func (s *side) counted() {
	s.Helper()
	s.dev.lock.Lock()
	defer s.dev.lock.Unlock()
	s.dev.book.Publish()
	if _, err := s.region.Audit(); err != nil {
		s.Error(err)
	}
	if sum := s.region.Snapshot().Sum(); sum != s.region.Frames() {
		s.Errorf("the owners have %d of %d frames", sum, s.region.Frames())
	}
}

// TestLoansLimit: if all loans are in use, the sender waits, and other queue pairs still receive
// ACKs.
func TestLoansLimit(t *testing.T) {
	g := newRig(t, rigOptions{})
	a, b := g.connected(lender(8), rdma.MTU1024)
	x, y := g.connected(config(rdma.RC), rdma.MTU1024)
	from := b.qp.(rdma.Lender)
	for i := range 9 {
		a.send(rdma.SendRequest{ID: uint64(i), Op: rdma.Send}, a.sge(0, 100))
	}
	for range 8 {
		b.completion()
	}
	b.await(func() bool { return b.value("rnr_sent") > 0 })
	y.receive(1, y.sge(0, 64))
	x.send(rdma.SendRequest{ID: 2, Op: rdma.Send}, x.sge(0, 64))
	y.want(1, rdma.Received, rdma.Success)
	x.want(2, rdma.SendDone, rdma.Success)
	var fs [16]umem.Frame
	if n := from.Loaned(fs[:]); n != 8 {
		t.Fatalf("%d frames are on loan, want 8", n)
	}
	from.Return(fs[3:4])
	b.completion()
	for i := range uint64(9) {
		a.want(i, rdma.SendDone, rdma.Success)
	}
	if n := from.Loaned(fs[3:4]); n != 1 {
		t.Errorf("%d frames came after one was returned", n)
	}
	from.Return(fs[:8])
	b.counted()
}

// TestLoansOutlive: frames can be returned after their queue pair is closed, and the device's Close
// takes back the others.
func TestLoansOutlive(t *testing.T) {
	g := newRig(t, rigOptions{})
	a, b := g.connected(lender(8), rdma.MTU1024)
	from := b.qp.(rdma.Lender)
	for range 4 {
		a.send(rdma.SendRequest{Op: rdma.Send}, a.sge(0, 100))
		b.completion()
	}
	var fs [2]umem.Frame
	from.Loaned(fs[:])
	free := b.region.Snapshot().Of(umem.OwnerPool)
	g.must(b.qp.Close())
	b.counted()
	from.Return(fs[:1])
	b.counted()
	if now := b.region.Snapshot().Of(umem.OwnerPool); now != free+8 {
		t.Errorf("the pool has %d frames more than before, want as many as loans", now-free)
	}
}

// TestLoanToDisk: a message can be written to a file with direct I/O from the frames that it
// arrived in.
func TestLoanToDisk(t *testing.T) {
	g := newRig(t, rigOptions{mtu: 4200})
	a, b := g.connected(lender(8), rdma.MTU2048)
	from := b.qp.(rdma.Lender)
	want := a.fill(0, 4096, 3)
	a.send(rdma.SendRequest{ID: 1, Op: rdma.Send}, a.sge(0, 4096))
	b.completion()
	var fs [4]umem.Frame
	n := from.Loaned(fs[:])
	if n != 2 || fs[0].Addr%512 != 0 || fs[1].Addr%512 != 0 || fs[0].Len != 2048 {
		t.Fatalf("%d frames: %+v", n, fs[:n])
	}
	name := filepath.Join(testenv.DiskDir(t), "loan")
	fd, err := unix.Open(name, unix.O_RDWR|unix.O_CREAT|unix.O_DIRECT|unix.O_CLOEXEC, 0o600)
	testenv.Must(t, err)
	defer unix.Unlink(name)
	defer unix.Close(fd)
	if n, err := unix.Pwritev(fd, [][]byte{b.region.Bytes(fs[0]), b.region.Bytes(fs[1])}, 0); n != 4096 || err != nil {
		t.Fatalf("direct I/O wrote %d bytes: %v", n, err)
	}
	got := make([]byte, 4096)
	plain, err := syscall.Open(name, syscall.O_RDONLY, 0)
	g.must(err)
	defer syscall.Close(plain)
	if n, err := syscall.Pread(plain, got, 0); n != 4096 || err != nil || !bytes.Equal(got, want) {
		t.Errorf("the file has %d bytes, %v, and they may differ", n, err)
	}
	if n := b.value("copied_bytes"); n != 0 {
		t.Errorf("%d bytes were copied", n)
	}
	from.Return(fs[:n])
}
