package cm

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// command is a pointer to a type of abi.go that begins with a header. The type has no pointers and
// no unnamed padding.
type command[C any] interface {
	*C
	head() *header
}

func (h *header) head() *header { return h }

// order passes the kernel a command without an answer.
func order[C any, P command[C]](fd int, number uint32, c P) error { return write(fd, number, c, 0) }

// ask passes the kernel a command with an answer. The command's field response gets the address of
// the answer, which is pinned until the kernel has written it.
func ask[C, A any, P command[C]](fd int, number uint32, c P, response *uint64, answer *A) error {
	var pins runtime.Pinner
	defer pins.Unpin()
	pins.Pin(answer)
	*response = uint64(uintptr(unsafe.Pointer(answer)))
	return write(fd, number, c, uint16(unsafe.Sizeof(*answer)))
}

func write[C any, P command[C]](fd int, number uint32, c P, out uint16) error {
	size := unsafe.Sizeof(*c)
	*c.head() = header{command: number, in: uint16(size - unsafe.Sizeof(header{})), out: out}
	for {
		n, err := unix.Write(fd, unsafe.Slice((*byte)(unsafe.Pointer(c)), size))
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return err
		case n != int(size):
			return unix.EIO
		}
		return nil
	}
}

// option sets an option of an identifier whose value is a byte or a 32-bit number.
func option[V uint8 | int32](fd int, id, name uint32, value V) error {
	var pins runtime.Pinner
	defer pins.Unpin()
	pins.Pin(&value)
	return order(fd, cmdOption, &setOption{value: uint64(uintptr(unsafe.Pointer(&value))), id: id, level: optionLevelID, name: name,
		length: uint32(unsafe.Sizeof(value))})
}
