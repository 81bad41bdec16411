package nvme

import (
	"testing"
	"unsafe"
)

// TestLayouts compares the structures with include/uapi/linux/io_uring.h.
func TestLayouts(t *testing.T) {
	var s sqe
	var p ringParams
	var b opProbe
	var g getEventsArg
	for _, c := range []struct {
		name      string
		got, want uintptr
	}{
		{"sqe", unsafe.Sizeof(s), 64},
		{"sqe.flags", unsafe.Offsetof(s.flags), 1},
		{"sqe.ioprio", unsafe.Offsetof(s.ioprio), 2},
		{"sqe.fd", unsafe.Offsetof(s.fd), 4},
		{"sqe.off", unsafe.Offsetof(s.off), 8},
		{"sqe.addr", unsafe.Offsetof(s.addr), 16},
		{"sqe.len", unsafe.Offsetof(s.len), 24},
		{"sqe.rw_flags", unsafe.Offsetof(s.opFlags), 28},
		{"sqe.user_data", unsafe.Offsetof(s.userData), 32},
		{"sqe.buf_index", unsafe.Offsetof(s.bufIndex), 40},
		{"sqe.personality", unsafe.Offsetof(s.personality), 42},
		{"sqe.file_index", unsafe.Offsetof(s.fileIndex), 44},
		{"sqe.addr3", unsafe.Offsetof(s.addr3), 48},
		{"sqe.pad", unsafe.Offsetof(s.pad), 56},
		{"nvme_uring_cmd", unsafe.Sizeof(nvmeCommand{}), 72},
		{"nvme_uring_cmd.nsid", unsafe.Offsetof(nvmeCommand{}.nsid), 4},
		{"nvme_uring_cmd.metadata", unsafe.Offsetof(nvmeCommand{}.metadata), 16},
		{"nvme_uring_cmd.addr", unsafe.Offsetof(nvmeCommand{}.addr), 24},
		{"nvme_uring_cmd.data_len", unsafe.Offsetof(nvmeCommand{}.dataLen), 36},
		{"nvme_uring_cmd.cdw10", unsafe.Offsetof(nvmeCommand{}.cdw10), 40},
		{"nvme_uring_cmd.timeout_ms", unsafe.Offsetof(nvmeCommand{}.timeout), 64},
		{"nvme_dsm_range", unsafe.Sizeof(dsmRange{}), 16},
		{"nvme_dsm_range.slba", unsafe.Offsetof(dsmRange{}.start), 8},
		{"cqe", unsafe.Sizeof(cqe{}), 16},
		{"cqe.res", unsafe.Offsetof(cqe{}.res), 8},
		{"cqe.flags", unsafe.Offsetof(cqe{}.flags), 12},
		{"params", unsafe.Sizeof(p), 120},
		{"params.features", unsafe.Offsetof(p.features), 20},
		{"params.sq_off", unsafe.Offsetof(p.sqOff), 40},
		{"params.cq_off", unsafe.Offsetof(p.cqOff), 80},
		{"sq_off", unsafe.Sizeof(p.sqOff), 40},
		{"sq_off.array", unsafe.Offsetof(p.sqOff.array), 24},
		{"sq_off.user_addr", unsafe.Offsetof(p.sqOff.userAddr), 32},
		{"cq_off", unsafe.Sizeof(p.cqOff), 40},
		{"cq_off.cqes", unsafe.Offsetof(p.cqOff.cqes), 20},
		{"cq_off.user_addr", unsafe.Offsetof(p.cqOff.userAddr), 32},
		{"iovec", unsafe.Sizeof(iovec{}), 16},
		{"rsrc_register", unsafe.Sizeof(rsrcRegister{}), 32},
		{"rsrc_register.data", unsafe.Offsetof(rsrcRegister{}.data), 16},
		{"rsrc_update", unsafe.Sizeof(rsrcUpdate{}), 16},
		{"probe", unsafe.Sizeof(b), 16 + 8*probeOps},
		{"probe.ops", unsafe.Offsetof(b.ops), 16},
		{"probe_op", unsafe.Sizeof(b.ops[0]), 8},
		{"probe_op.flags", unsafe.Offsetof(b.ops[0].flags), 2},
		{"getevents_arg", unsafe.Sizeof(g), 24},
		{"getevents_arg.ts", unsafe.Offsetof(g.ts), 16},
		{"timespec", unsafe.Sizeof(timespec{}), 16},
	} {
		if c.got != c.want {
			t.Errorf("%s: %d, in the kernel's header %d", c.name, c.got, c.want)
		}
	}
}
