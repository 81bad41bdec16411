//go:build verbs && cgo

package verbs

/*
#cgo LDFLAGS: -ldl
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"slices"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/rdma"
)

// libibverbs is the library's name with the version of its interface, which has been
// the same since its first release.
const libibverbs = "libibverbs.so.1"

// loadOnce opens libibverbs when it is first needed. It stays open.
var loadOnce = sync.OnceValue(func() error { return load(libibverbs) })

func load(name string) error {
	text := append([]byte(name), 0)
	if why := C.ud_load((*C.char)(unsafe.Pointer(&text[0]))); why != nil {
		return fmt.Errorf("RDMA over libibverbs: %w here: %s (Debian: apt-get install libibverbs1 ibverbs-providers)", rdma.ErrUnsupported, C.GoString(why))
	}
	return nil
}

// eachDevice calls f with the devices that libibverbs has a driver for. They are valid
// until it returns.
func eachDevice(f func(name string, d *C.struct_ibv_device)) error {
	if err := loadOnce(); err != nil {
		return err
	}
	var n C.int
	list, err := C.ud_get_device_list(&n)
	if list == nil {
		return listError(err)
	}
	defer C.ud_free_device_list(list)
	for i := range n {
		d := C.ud_device_at(list, i)
		f(C.GoString(C.ud_device_name(d)), d)
	}
	return nil
}

func listError(err error) error {
	if err == unix.ENOSYS {
		return fmt.Errorf("list RDMA devices: %w by the running kernel: load its modules (modprobe ib_uverbs)", rdma.ErrUnsupported)
	}
	return fmt.Errorf("list RDMA devices: %w", err)
}

func devices() ([]string, error) {
	names := []string{}
	err := eachDevice(func(name string, _ *C.struct_ibv_device) { names = append(names, name) })
	slices.Sort(names)
	return names, err
}

// newTables makes the tables that a domain's queue pairs use while they post. The kernel allocates
// memory for the parts that are used.
func newTables() (*C.struct_ud_tables, error) {
	t := (*C.struct_ud_tables)(C.calloc(1, C.sizeof_struct_ud_tables))
	if t == nil {
		return nil, unix.ENOMEM
	}
	return t, nil
}

func freeTables(t *C.struct_ud_tables) { C.free(unsafe.Pointer(t)) }

// Addresses as the data path uses them.
func (p *domain) address() C.uintptr_t             { return C.uintptr_t(uintptr(unsafe.Pointer(p.tables))) }
func addressOfQP(qp *C.struct_ibv_qp) C.uintptr_t  { return C.uintptr_t(uintptr(unsafe.Pointer(qp))) }
func addressOfCQ(cq *C.struct_ibv_cq) C.uintptr_t  { return C.uintptr_t(uintptr(unsafe.Pointer(cq))) }
func addressOfSRQ(s *C.struct_ibv_srq) C.uintptr_t { return C.uintptr_t(uintptr(unsafe.Pointer(s))) }

// registerMemory calls ibv_reg_mr_iova2, or ibv_reg_mr if atIOVA is false.
func registerMemory(pd *C.struct_ibv_pd, mem []byte, iova uint64, atIOVA bool, a rdma.Access) (*C.struct_ibv_mr, unix.Errno) {
	var mr *C.struct_ibv_mr
	at := C.int(0)
	if atIOVA {
		at = 1
	}
	errno := C.ud_reg_mr(pd, unsafe.Pointer(&mem[0]), C.size_t(len(mem)), C.uint64_t(iova), at, C.int(a), &mr)
	return mr, unix.Errno(errno)
}

// addressOfMemory returns the address of memory in this process.
func addressOfMemory(mem []byte) uint64 { return uint64(uintptr(unsafe.Pointer(&mem[0]))) }
