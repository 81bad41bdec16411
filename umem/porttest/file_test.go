package porttest_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/umem"
	"github.com/unifiedd/unifiedd/umem/porttest"
)

// file is a port that stores. Each sent frame is written to a file at Side.Block, and each supplied
// frame is read from there. Kick does the work. It checks that the suite fits devices that store;
// it is not a model for block I/O.
type file struct {
	*os.File
	worker, holder *umem.Holder
	todo           []func() // what the next Kick does
	full, drained  []umem.Frame
	supplied, sent int
	event          int
}

const fileDepth = 32

func openFile(worker *umem.Holder, path string) (*file, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	h, err := worker.Book().NewHolder(umem.OwnerNVMe, "file")
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	ev, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &file{File: f, worker: worker, holder: h, event: ev, todo: make([]func(), 0, 2*fileDepth),
		full: make([]umem.Frame, 0, fileDepth), drained: make([]umem.Frame, 0, fileDepth)}, nil
}

func (p *file) Supply(empty []umem.Frame) int {
	n := min(len(empty), fileDepth-p.supplied)
	return p.accept(&p.supplied, empty[:n], func(f umem.Frame) { p.full = append(p.full, p.transfer(f, p.ReadAt)) })
}

func (p *file) Send(full []umem.Frame) int {
	n := umem.Whole(full[:min(len(full), fileDepth-p.sent)])
	return p.accept(&p.sent, full[:n], func(f umem.Frame) { p.drained = append(p.drained, p.transfer(f, p.WriteAt)) })
}

func (p *file) accept(count *int, fs []umem.Frame, do func(umem.Frame)) int {
	if p.File == nil {
		return 0
	}
	for _, f := range fs {
		p.todo = append(p.todo, func() { do(f) })
	}
	*count += len(fs)
	p.worker.PassTo(p.holder, fs)
	return len(fs)
}

func (p *file) transfer(f umem.Frame, io func([]byte, int64) (int, error)) umem.Frame {
	r := p.worker.Book().Region()
	if _, err := io(r.Bytes(f), int64(r.Side(f).Block)); err != nil {
		return f.WithError(unix.EIO)
	}
	return f
}

func (p *file) Recv(dst []umem.Frame) int { return p.give(&p.full, &p.supplied, dst) }
func (p *file) Reap(dst []umem.Frame) int { return p.give(&p.drained, &p.sent, dst) }

func (p *file) give(from *[]umem.Frame, count *int, dst []umem.Frame) int {
	n := copy(dst, *from)
	*from = slices.Delete(*from, 0, n)
	*count -= n
	p.holder.PassTo(p.worker, dst[:n])
	p.tell()
	return n
}

func (p *file) Kick() error {
	if p.File == nil {
		return io.ErrClosedPipe
	}
	for _, do := range p.todo {
		do()
	}
	p.todo = p.todo[:0]
	p.tell()
	return nil
}

func (p *file) tell() {
	if p.File == nil {
		return
	}
	var count [8]byte
	unix.Read(p.event, count[:])
	if len(p.full)+len(p.drained) > 0 {
		count[0] = 1
		unix.Write(p.event, count[:])
	}
}

func (p *file) FD() int { return p.event }

func (p *file) Limits() umem.Limits {
	return umem.Limits{Message: 1 << 20, Frames: 8, Supply: fileDepth, Send: fileDepth}
}

func (p *file) Close() error {
	if p.File == nil {
		return nil
	}
	err := errors.Join(p.File.Close(), unix.Close(p.event))
	p.File, p.todo, p.full, p.drained = nil, nil, nil, nil
	p.holder.Close()
	return err
}

// openStored makes a link to one file port, which is both ends.
func openStored(t testing.TB) *porttest.Link {
	const stride = 16 << 10
	l := &porttest.Link{Worker: openWorker(t), Stored: true, Min: 512, Max: 12 << 10, Unit: 512, Offset: 512}
	r := l.Worker.Book().Region()
	l.Prepare = func(slot, offset int, f *umem.Frame) { r.Side(*f).Block = uint64(slot*stride + offset) }
	l.Spoil = func(f *umem.Frame) { r.Side(*f).Block = 1 << 63 }
	path := filepath.Join(t.TempDir(), "stored")
	l.Reopen = func(t testing.TB) {
		p, err := openFile(l.Worker, path)
		if err != nil {
			t.Fatal(err)
		}
		l.Sender, l.Receiver = p, p
		t.Cleanup(func() { p.Close() })
	}
	l.Reopen(t)
	return l
}

func TestFile(t *testing.T) {
	for _, c := range porttest.Cases() {
		if c.Name == "Allocations" { // this port makes a closure per frame, and the suite must report that
			continue
		}
		t.Run(c.Name, func(t *testing.T) { c.Check(t, openStored) })
	}
	said := outcome(t, "Allocations", openStored)
	if !said.has("allocated") {
		t.Errorf("a port that allocates was not caught: %v", said)
	}
}
