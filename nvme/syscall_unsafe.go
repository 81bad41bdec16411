package nvme

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The kernel reads and writes the arguments below only during the call.

// ioUringSetup is io_uring_setup(2). The descriptor is closed on exec.
func ioUringSetup(entries uint32, p *ringParams) (int, error) {
	fd, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, uintptr(entries), uintptr(unsafe.Pointer(p)), 0)
	if errno != 0 {
		return -1, errno
	}
	return int(fd), nil
}

// register is io_uring_register(2). It repeats the call if a signal interrupts it.
func (r *ring) register(op uint32, arg unsafe.Pointer, n uint32) error {
	for {
		_, _, errno := unix.Syscall6(unix.SYS_IO_URING_REGISTER, uintptr(r.fd), uintptr(op), uintptr(arg), uintptr(n), 0, 0)
		switch errno {
		case 0:
			return nil
		case unix.EINTR:
		default:
			return errno
		}
	}
}

// enable starts a ring that was set up disabled and makes the calling thread
// its only submitter.
func (r *ring) enable() error { return r.register(registerEnableRings, nil, 0) }

// registerBuffers registers memory for READ_FIXED and similar operations, in order.
func (r *ring) registerBuffers(buffers [][]byte) error {
	vecs := make([]iovec, len(buffers))
	for i, b := range buffers {
		vecs[i] = iovec{base: address(b), len: uint64(len(b))}
	}
	return r.register(registerBuffers, unsafe.Pointer(unsafe.SliceData(vecs)), uint32(len(vecs)))
}

// limitWorkers sets the largest numbers of kernel threads for the thread that submits: for work on
// files and disks (bound), and for other work. 0 leaves a number unchanged.
func (r *ring) limitWorkers(bound, others uint32) error {
	limits := [2]uint32{bound, others}
	return r.register(registerIOWQMaxWorkers, unsafe.Pointer(&limits), uint32(len(limits)))
}

func (r *ring) unregisterBuffers() error { return r.register(unregisterBuffers, nil, 0) }

// registerTable makes a file table of n empty places.
func (r *ring) registerTable(n uint32) error {
	table := rsrcRegister{nr: n, flags: rsrcSparse}
	return r.register(registerFiles2, unsafe.Pointer(&table), uint32(unsafe.Sizeof(table)))
}

// setFile sets a place of the table to a descriptor. -1 empties it.
func (r *ring) setFile(place uint32, fd int32) error {
	var pin runtime.Pinner // the kernel uses a pointer that Go sees as a number
	defer pin.Unpin()
	pin.Pin(&fd)
	u := rsrcUpdate{offset: place, data: uint64(uintptr(unsafe.Pointer(&fd)))}
	n, _, errno := unix.Syscall6(unix.SYS_IO_URING_REGISTER, uintptr(r.fd), registerFilesUpdate, uintptr(unsafe.Pointer(&u)), 1, 0, 0)
	if errno != 0 {
		return errno
	}
	if n != 1 {
		return unix.EIO
	}
	return nil
}

// setEvent registers an eventfd that the kernel sets for completions.
func (r *ring) setEvent(fd int32) error { return r.register(registerEventfd, unsafe.Pointer(&fd), 1) }

// supports reports whether the kernel supports all of the operations.
func (r *ring) supports(ops ...uint8) bool {
	var p opProbe
	if r.register(registerProbe, unsafe.Pointer(&p), probeOps) != nil {
		return false
	}
	for _, op := range ops {
		if op > p.lastOp || p.ops[op].flags&opSupported == 0 {
			return false
		}
	}
	return true
}
