// Ring-read reads a file or a block device with direct I/O, through
// github.com/pawelgaczynski/giouring, and writes it to standard output.
//
//	ring-read PATH
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"unsafe"

	"github.com/pawelgaczynski/giouring"
)

const (
	depth = 16
	block = 64 << 10
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "ring-read:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return errors.New("usage: ring-read PATH")
	}
	f, err := os.OpenFile(args[0], os.O_RDONLY|syscall.O_DIRECT, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	r, err := open(f)
	if err != nil {
		return err
	}
	defer r.ring.QueueExit()
	return r.copy(os.Stdout, size)
}

// reader is a ring with one registered buffer, cut into blocks.
type reader struct {
	ring    *giouring.Ring
	fd      int
	memory  []byte
	results [depth]int32 // result of each block
}

func open(f *os.File) (*reader, error) {
	r := &reader{ring: giouring.NewRing(), fd: int(f.Fd())}
	var err error
	r.memory, err = syscall.Mmap(-1, 0, depth*block, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("map the buffer: %w", err)
	}
	if err := r.ring.QueueInit(depth, 0); err != nil {
		return nil, fmt.Errorf("open the ring: %w", err)
	}
	if _, err := r.ring.RegisterBuffers([]syscall.Iovec{{Base: &r.memory[0], Len: uint64(len(r.memory))}}); err != nil {
		return nil, fmt.Errorf("register the buffer: %w", err)
	}
	return r, nil
}

// copy reads and writes one round of blocks at a time, in their order on the disk.
func (r *reader) copy(w io.Writer, size int64) error {
	for at := int64(0); at < size; {
		n, err := r.round(at, min(depth, int((size-at+block-1)/block)))
		if err != nil {
			return fmt.Errorf("read from %d: %w", at, err)
		}
		if n == 0 {
			return fmt.Errorf("at %d of %d bytes nothing more can be read", at, size)
		}
		if _, err := w.Write(r.memory[:n]); err != nil {
			return err
		}
		at += int64(n)
	}
	return nil
}

// round reads blocks at once, and returns how many consecutive bytes it has read.
func (r *reader) round(at int64, blocks int) (int, error) {
	base := uintptr(unsafe.Pointer(&r.memory[0]))
	for i := range blocks {
		entry := r.ring.GetSQE()
		if entry == nil {
			return 0, errors.New("the submission queue is full")
		}
		entry.PrepareReadFixed(r.fd, base+uintptr(i*block), block, uint64(at+int64(i)*block), 0)
		entry.UserData = uint64(i)
	}
	if _, err := r.ring.SubmitAndWait(uint32(blocks)); err != nil {
		return 0, err
	}
	for range blocks {
		done, err := r.ring.WaitCQE()
		if err != nil {
			return 0, err
		}
		r.results[done.UserData] = done.Res
		r.ring.CQESeen(done)
	}
	n := 0
	for _, got := range r.results[:blocks] {
		if got < 0 {
			return 0, syscall.Errno(-got)
		}
		if n += int(got); got < block {
			break
		}
	}
	return n, nil
}
