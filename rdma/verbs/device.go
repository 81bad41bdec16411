//go:build verbs && cgo

package verbs

/*
#include "shim.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/lifetime"
)

// device is an open device.
type device struct {
	life  lifetime.Object
	title string
	ctx   *C.struct_ibv_context
	fd    int // of events
	caps  rdma.Capabilities
	// atZero means that regions can be registered at address 0.
	atZero bool
	// windows means that the device has memory windows and enforces their bounds.
	windows bool
	pairs   atomic.Int32 // open queue pairs
}

func (d *device) String() string { return d.life.String() }

var _ rdma.Device = (*device)(nil)

// open opens the device of the name.
func open(name string) (rdma.Device, error) {
	d := &device{title: name, atZero: true}
	d.life.SetName("RDMA device " + name)
	var errno C.int
	names := []string{}
	err := eachDevice(func(title string, dev *C.struct_ibv_device) {
		names = append(names, title)
		if title == name {
			errno = C.ud_open_device(dev, &d.ctx)
		}
	})
	switch {
	case err != nil:
		return nil, err
	case !slices.Contains(names, name):
		return nil, noDevice(name, names)
	case errno != 0:
		return nil, refusal("open", d, unix.Errno(errno), nil)
	}
	d.fd = int(d.ctx.async_fd)
	d.atZero = C.ud_has_iova() != 0
	if err := d.readCapabilities(); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// noDevice is the error for a missing device. It names the devices that exist.
func noDevice(name string, names []string) error {
	const remedy = "for a card load the modules of its driver, and for Soft-RoCE make one: modprobe rdma_rxe; rdma link add rxe0 type rxe netdev eth0"
	var without []string
	if kernel, err := KernelDevices(); err == nil {
		without = slices.DeleteFunc(kernel, func(n string) bool { return slices.Contains(names, n) })
	}
	switch {
	case slices.Contains(without, name):
		return fmt.Errorf("open RDMA device %s: %w: the kernel has it, but libibverbs has no driver for it, or there is no "+
			"/dev/infiniband/uverbs* of it (Debian: apt-get install ibverbs-providers; modprobe ib_uverbs)", name, unix.ENODEV)
	case len(names) == 0:
		return fmt.Errorf("open RDMA device %s: %w: there is none (%s)", name, unix.ENODEV, remedy)
	}
	return fmt.Errorf("open RDMA device %s: %w: there are %s (%s)", name, unix.ENODEV, strings.Join(names, ", "), remedy)
}

func (d *device) Name() string { return d.title }

func (d *device) Capabilities() rdma.Capabilities { return d.caps }

func (d *device) readCapabilities() error {
	var a C.struct_ibv_device_attr
	if errno := C.ud_query_device(d.ctx, &a); errno != 0 {
		return refusal("ask for the limits", d, unix.Errno(errno), nil)
	}
	d.windows = uint32(a.device_cap_flags)&(C.IBV_DEVICE_MEM_WINDOW_TYPE_2A|C.IBV_DEVICE_MEM_WINDOW_TYPE_2B) != 0 && a.vendor_id != softRoCE
	d.caps = rdma.Capabilities{
		Firmware: C.GoString(&a.fw_ver[0]), NodeGUID: bits.ReverseBytes64(uint64(a.node_guid)),
		VendorID: uint32(a.vendor_id), PartID: uint32(a.vendor_part_id), Ports: uint8(a.phys_port_cnt),
		MaxQueuePairs: int(a.max_qp), MaxWorkRequests: int(a.max_qp_wr), MaxSGEs: int(a.max_sge), MaxSGEsRead: int(a.max_sge_rd),
		MaxCompletionQueues: int(a.max_cq), MaxCompletions: int(a.max_cqe),
		MaxMemoryRegions: int(a.max_mr), MaxMemoryRegion: uint64(a.max_mr_size),
		MaxReads: int(a.max_qp_init_rd_atom), MaxRemoteReads: int(a.max_qp_rd_atom),
		MaxSharedQueues: int(a.max_srq), MaxSharedRequests: int(a.max_srq_wr), MaxSharedSGEs: int(a.max_srq_sge),
		MaxMemoryWindows: int(a.max_mw), Atomics: a.atomic_cap != C.IBV_ATOMIC_NONE,
		WindowsType2:         d.windows,
		LocalAcknowledgement: uint8(a.local_ca_ack_delay),
	}
	return nil
}

// softRoCE is the vendor that Soft-RoCE reports (drivers/infiniband/sw/rxe/rxe_param.h). Through a
// window of Soft-RoCE a peer can access the whole registration that the window is bound to:
// check_rkey in rxe_resp.c (6.1 to 7.2) checks no other bounds.
const softRoCE = 0xffffff

func (d *device) Port(number uint8) (p rdma.Port, err error) {
	err = d.life.WhileOpen(func() error {
		p, err = d.port(number)
		return err
	})
	return p, err
}

// hasPort refuses the numbers of ports that the device does not have.
func (d *device) hasPort(number uint8) error {
	if number < 1 || number > d.caps.Ports {
		return fmt.Errorf("%v has no port %d: they are numbered from 1 to %d", d, number, d.caps.Ports)
	}
	return nil
}

func (d *device) port(number uint8) (rdma.Port, error) {
	if err := d.hasPort(number); err != nil {
		return rdma.Port{}, err
	}
	var a C.struct_ibv_port_attr
	if errno := C.ud_query_port(d.ctx, C.uint8_t(number), &a); errno != 0 {
		return rdma.Port{}, refusal(fmt.Sprintf("ask for port %d", number), d, unix.Errno(errno), nil)
	}
	return rdma.Port{
		Number: number, Active: a.state == C.IBV_PORT_ACTIVE, State: portState(int(a.state)), LinkLayer: rdma.LinkLayer(a.link_layer),
		MaxMTU: rdma.MTU(a.max_mtu), ActiveMTU: rdma.MTU(a.active_mtu), MaxMessage: uint32(a.max_msg_sz),
		LID: uint16(a.lid), SubnetLID: uint16(a.sm_lid), GIDs: int(a.gid_tbl_len), PKeys: int(a.pkey_tbl_len),
		Width: uint8(a.active_width), Speed: uint8(a.active_speed),
	}, nil
}

// portState returns the name of an enum ibv_port_state, as the kernel writes it in sysfs.
func portState(n int) string {
	names := []string{"NOP", "DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER"}
	if n >= 0 && n < len(names) {
		return names[n]
	}
	return fmt.Sprintf("state %d", n)
}

func (d *device) GIDs(port uint8) (table []rdma.GIDEntry, err error) {
	err = d.life.WhileOpen(func() error {
		table, err = d.gids(port)
		return err
	})
	return table, err
}

// gids reads all entries through libibverbs at once, or from sysfs if the library is too old.
func (d *device) gids(port uint8) ([]rdma.GIDEntry, error) {
	if err := d.hasPort(port); err != nil {
		return nil, err
	}
	room := 0
	for n := uint8(1); n <= d.caps.Ports; n++ {
		p, err := d.port(n)
		if err != nil {
			return nil, err
		}
		room += p.GIDs
	}
	if room == 0 {
		return nil, nil
	}
	entries := make([]C.struct_ibv_gid_entry, room)
	n := int(C.ud_query_gids(d.ctx, &entries[0], C.size_t(room)))
	if n < 0 || n > room {
		return ReadGIDs(d.title, port)
	}
	var table []rdma.GIDEntry
	for _, e := range entries[:n] {
		if uint8(e.port_num) == port {
			table = append(table, rdma.GIDEntry{GID: rdma.GID(e.gid), Index: int(e.gid_index), Type: rdma.GIDType(e.gid_type), Interface: int(e.ndev_ifindex)})
		}
	}
	return table, nil
}

func (d *device) EventFD() int { return d.fd }

func (d *device) NextEvent() (e rdma.Event, ok bool, err error) {
	err = d.life.WhileOpen(func() error {
		var kind C.int
		var number C.uint32_t
		switch errno := unix.Errno(C.ud_next_event(d.ctx, &kind, &number)); errno {
		case 0:
			e, ok = eventOf(rdma.EventKind(kind), uint32(number)), true
			return nil
		case unix.EAGAIN:
			return nil
		default:
			return refusal("take an event", d, errno, nil)
		}
	})
	return e, ok, err
}

func eventOf(kind rdma.EventKind, number uint32) rdma.Event {
	switch kind {
	case rdma.PortActive, rdma.PortError, rdma.LIDChange, rdma.PKeyChange, rdma.GIDChange:
		return rdma.Event{Kind: kind, Port: uint8(number)}
	}
	return rdma.Event{Kind: kind, QPN: number}
}

func (d *device) Close() error {
	return d.life.Close(func() error {
		if errno := C.ud_close_device(d.ctx); errno != 0 {
			return explain(unix.Errno(errno), nil)
		}
		return nil
	})
}
